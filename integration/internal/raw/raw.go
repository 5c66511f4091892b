// Package raw is a RocketMQ remoting client that costs next to nothing: many requests in flight on one connection, one write for all that
// wait while another write runs, answers matched by opaque, headers built and read without a JSON library. It shares no code with the
// broker, so a mistake of the broker's codec is not repeated here. It is for tests and measurements, and says what library clients refuse to say.
//
// Frames and fields: https://rocketmq.apache.org/docs/ (remoting protocol): 4 bytes length, 1 byte header kind (0 JSON), 3 bytes header
// length, header, body.
package raw

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"strconv"
	"time"

	"github.com/fusionmq/fusionmq/integration/internal/inflight"
)

// Request codes that this package sends.
const (
	CodePull         = 11
	CodeQueryOffset  = 14
	CodeUpdateTopic  = 17
	CodeMaxOffset    = 30
	CodeViewMessage  = 33
	CodeHeartbeat    = 34
	CodeCheckClient  = 46
	CodeRoute        = 105
	CodeCluster      = 106
	CodeResetOffset  = 222
	CodeSendV2       = 310
	CodeSendBatch    = 320
	CodeRecall       = 370
	MaxFrame         = 64 << 20
	answerLimit      = 30 * time.Second
	readBuffer       = 256 << 10
	flagResponse     = 1
	languageAndVer   = `,"language":"GO","version":433,"opaque":`
	headerKindMask   = 0xffffff
	minFrameContents = 4
)

var (
	// ErrClosed is what a request gets whose connection ended before its answer: it may have been done.
	ErrClosed = errors.New("raw: connection closed before an answer")
	// ErrNotSent is what a request gets on a connection that had ended already.
	ErrNotSent = errors.New("raw: connection is closed")
)

// Answer is a response. Header and Body are valid until the callback that got them returns.
type Answer struct{ Header, Body []byte }

// Code is the response code.
func (a Answer) Code() int { return int(Int(a.Header, "code")) }

// Err is nil for code 0 and names code and remark otherwise.
func (a Answer) Err() error {
	if c := a.Code(); c != 0 {
		return &CodeError{Code: c, Remark: Str(a.Header, "remark")}
	}
	return nil
}

// CodeError is an answer other than success.
type CodeError struct {
	Code   int
	Remark string
}

func (e *CodeError) Error() string { return fmt.Sprintf("code %d: %s", e.Code, e.Remark) }

// Conn is one connection. Its methods may be called from any goroutine.
type Conn struct{ *inflight.Conn[Answer] }

// Dial connects. Requests whose connection ends get ErrClosed.
func Dial(addr string) (*Conn, error) {
	nc, err := net.DialTimeout("tcp", addr, 5*time.Second)
	if err != nil {
		return nil, err
	}
	c := &Conn{inflight.New[Answer](nc, ErrClosed)}
	c.Start(func() { c.read(nc) })
	return c, nil
}

func (c *Conn) read(nc net.Conn) {
	br := bufio.NewReaderSize(nc, readBuffer)
	var buf []byte
	for {
		var head [4]byte
		if _, err := io.ReadFull(br, head[:]); err != nil {
			return
		}
		n := int(binary.BigEndian.Uint32(head[:]))
		if n < minFrameContents || n > MaxFrame {
			return
		}
		if cap(buf) < n {
			buf = make([]byte, n+n/4)
		}
		buf = buf[:n]
		if _, err := io.ReadFull(br, buf); err != nil {
			return
		}
		h := int(binary.BigEndian.Uint32(buf)) & headerKindMask
		if 4+h > n {
			return
		}
		a := Answer{Header: buf[4 : 4+h], Body: buf[4+h:]}
		if Int(a.Header, "flag")&flagResponse == 0 {
			continue // a notice or a check of the broker's own
		}
		if done := c.Take(uint32(Int(a.Header, "opaque"))); done != nil {
			done(a, nil)
		}
	}
}

// Go sends a request. ext appends the inside of the extFields object, body parts follow the header; both are copied before Go returns. done
// runs once on the connection's reader.
func (c *Conn) Go(code int, ext func([]byte) []byte, done func(Answer, error), body ...[]byte) {
	out, id, ok := c.Begin(done)
	if !ok {
		done(Answer{}, ErrNotSent)
		return
	}
	c.End(appendFrame(out, id, code, ext, body))
}

// Do sends a request and waits for its answer, which is a copy. kv are pairs of field and value.
func (c *Conn) Do(code int, body []byte, kv ...string) (Answer, error) {
	type result struct {
		a   Answer
		err error
	}
	ch := make(chan result, 1)
	c.Go(code, Fields(kv...), func(a Answer, err error) {
		ch <- result{Answer{append([]byte(nil), a.Header...), append([]byte(nil), a.Body...)}, err}
	}, body)
	timer := time.NewTimer(answerLimit)
	defer timer.Stop()
	select {
	case r := <-ch:
		return r.a, r.err
	case <-timer.C:
		return Answer{}, fmt.Errorf("raw: no answer to code %d in %s", code, answerLimit)
	}
}

// Fields builds extFields from pairs; values are escaped.
func Fields(kv ...string) func([]byte) []byte {
	return func(b []byte) []byte {
		for i := 0; i+1 < len(kv); i += 2 {
			if i > 0 {
				b = append(b, ',')
			}
			b = AppendString(b, kv[i])
			b = append(b, ':')
			b = AppendString(b, kv[i+1])
		}
		return b
	}
}

// AppendString appends a JSON string; control characters, which properties are full of, are escaped.
func AppendString(b []byte, s string) []byte {
	const hex = "0123456789abcdef"
	b = append(b, '"')
	for i := range len(s) {
		switch ch := s[i]; {
		case ch == '"' || ch == '\\':
			b = append(b, '\\', ch)
		case ch < 0x20:
			b = append(b, '\\', 'u', '0', '0', hex[ch>>4], hex[ch&15])
		default:
			b = append(b, ch)
		}
	}
	return append(b, '"')
}

func appendFrame(out []byte, id uint32, code int, ext func([]byte) []byte, body [][]byte) []byte {
	at := len(out)
	out = append(out, 0, 0, 0, 0, 0, 0, 0, 0)
	out = append(out, `{"code":`...)
	out = strconv.AppendInt(out, int64(code), 10)
	out = append(out, languageAndVer...)
	out = strconv.AppendUint(out, uint64(id), 10)
	out = append(out, `,"flag":0`...)
	if ext != nil {
		out = append(out, `,"extFields":{`...)
		out = ext(out)
		out = append(out, '}')
	}
	out = append(out, '}')
	binary.BigEndian.PutUint32(out[at+4:], uint32(len(out)-at-8))
	for _, b := range body {
		out = append(out, b...)
	}
	binary.BigEndian.PutUint32(out[at:], uint32(len(out)-at-4))
	return out
}
