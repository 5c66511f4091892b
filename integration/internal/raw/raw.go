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
	"sync"
	"time"
)

// Request codes that this package sends.
const (
	CodePull         = 11
	CodeQueryOffset  = 14
	CodeUpdateTopic  = 17
	CodeMaxOffset    = 30
	CodeViewMessage  = 33
	CodeHeartbeat    = 34
	CodeRoute        = 105
	CodeCluster      = 106
	CodeSendV2       = 310
	CodeSendBatch    = 320
	MaxFrame         = 64 << 20
	answerLimit      = 30 * time.Second
	readBuffer       = 256 << 10
	flagResponse     = 1
	opaqueMask       = 0x7fffffff
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
type Conn struct {
	c    net.Conn
	wake chan struct{} // one waiting token: there is something to write
	gone chan struct{} // closed when the reader has ended

	mu struct {
		sync.Mutex
		out  []byte // frames not yet handed to a write
		next uint32
		wait map[uint32]func(Answer, error)
		dead bool
	}
}

// Dial connects.
func Dial(addr string) (*Conn, error) {
	c, err := net.DialTimeout("tcp", addr, 5*time.Second)
	if err != nil {
		return nil, err
	}
	conn := &Conn{c: c, wake: make(chan struct{}, 1), gone: make(chan struct{})}
	conn.mu.wait = map[uint32]func(Answer, error){}
	go conn.write()
	go conn.read()
	return conn, nil
}

// Close ends the connection; callbacks that still wait get ErrClosed.
func (c *Conn) Close() {
	c.fail()
	<-c.gone
}

// Gone is closed when the connection has ended and every callback has run.
func (c *Conn) Gone() <-chan struct{} { return c.gone }

// Waiting is how many requests have no answer yet.
func (c *Conn) Waiting() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.mu.wait)
}

func (c *Conn) write() {
	var buf []byte
	for {
		select {
		case <-c.wake:
		case <-c.gone:
			return
		}
		c.mu.Lock()
		buf, c.mu.out = c.mu.out, buf[:0]
		c.mu.Unlock()
		if len(buf) == 0 {
			continue
		}
		if _, err := c.c.Write(buf); err != nil {
			_ = c.c.Close() // the reader sees it and tells the waiters
			return
		}
	}
}

func (c *Conn) read() {
	defer close(c.gone)
	defer c.fail()
	br := bufio.NewReaderSize(c.c, readBuffer)
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
		id := uint32(Int(a.Header, "opaque"))
		c.mu.Lock()
		f := c.mu.wait[id]
		delete(c.mu.wait, id)
		c.mu.Unlock()
		if f != nil {
			f(a, nil)
		}
	}
}

func (c *Conn) fail() {
	_ = c.c.Close()
	c.mu.Lock()
	wait := c.mu.wait
	c.mu.wait, c.mu.dead = map[uint32]func(Answer, error){}, true
	c.mu.Unlock()
	for _, f := range wait {
		f(Answer{}, ErrClosed)
	}
}

// Go sends a request. ext appends the inside of the extFields object, body parts follow the header; both are copied before Go returns. done
// runs once on the connection's reader.
func (c *Conn) Go(code int, ext func([]byte) []byte, done func(Answer, error), body ...[]byte) {
	c.mu.Lock()
	if c.mu.dead {
		c.mu.Unlock()
		done(Answer{}, ErrNotSent)
		return
	}
	c.mu.next++
	id := c.mu.next & opaqueMask
	c.mu.wait[id] = done
	c.mu.out = appendFrame(c.mu.out, id, code, ext, body)
	c.mu.Unlock()
	select {
	case c.wake <- struct{}{}:
	default: // the writer has a token already
	}
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
