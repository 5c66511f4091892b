package system

import (
	"bytes"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/fusionmq/fusionmq/integration/internal/proc"
	"github.com/fusionmq/fusionmq/integration/internal/raw"
	"github.com/fusionmq/fusionmq/integration/internal/rmq"
)

// logEnd is the broker's own count of the bytes in its log.
func logEnd(t *testing.T, s *proc.Server) int64 {
	t.Helper()
	const runtimeInfo = 28
	a, err := dial(t, s, "broker").Do(runtimeInfo, nil)
	if err == nil {
		err = a.Err()
	}
	if err != nil {
		t.Fatal(err)
	}
	const name = "commitLogMaxOffset"
	if raw.Str(a.Body, name) == "" {
		t.Fatalf("no %s in %s", name, a.Body)
	}
	return raw.Int(a.Body, name)
}

// serves proves that a listener still answers after an attack.
func serves(t *testing.T, s *proc.Server) {
	t.Helper()
	if code, body := get(t, s, "/readyz"); code != 200 {
		t.Fatalf("not ready any more: %d %s", code, body)
	}
	if _, err := raw.Broker(s.Addr["nameserver"]); err != nil {
		t.Fatalf("the name server does not answer: %v", err)
	}
	logEnd(t, s)
}

// attack writes b to a listener, then reads until the server closes, an answer comes or d has passed, whichever is first.
func attack(t *testing.T, addr string, b []byte, d time.Duration) (answer []byte, closed bool) {
	t.Helper()
	c, err := net.Dial("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if err := c.SetDeadline(time.Now().Add(d)); err != nil {
		t.Fatal(err)
	}
	if _, err := c.Write(b); err != nil {
		return nil, true
	}
	buf := make([]byte, 4096)
	n, err := c.Read(buf)
	return buf[:n], err != nil && !errors.Is(err, os.ErrDeadlineExceeded)
}

// A server must end a conversation that cannot go on by itself and must not wait for bytes that never come.
func TestForeignProtocolsAreClosedAndStoreNothing(t *testing.T) {
	s := start(t, t.TempDir()) // where nobody else writes
	serves(t, s)
	before := logEnd(t, s)
	frame := func(length, header uint32, rest string) []byte {
		b := binary.BigEndian.AppendUint32(nil, length)
		return append(binary.BigEndian.AppendUint32(b, header), rest...)
	}
	for _, tc := range []struct {
		name string
		give []byte
	}{
		{"HTTP", []byte("GET / HTTP/1.1\r\nHost: x\r\n\r\n")},
		{"HTTP/2 preface", []byte("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\x00\x00\x00\x04\x00\x00\x00\x00\x00")},
		{"SSH", []byte("SSH-2.0-OpenSSH_9.2\r\n")},
		{"Redis", []byte("*1\r\n$4\r\nPING\r\n")},
		{"MQTT", []byte("\x10\x0c\x00\x04MQTT\x04\x02\x00\x3c\x00\x00")},
		{"a length beyond every limit", frame(0x7fffffff, 10, "")},
		{"a negative length", frame(0xffffffff, 10, "")},
		{"a header longer than its frame", frame(20, 0x00ffffff, "0123456789abcdef")},
		{"zeros", make([]byte, 64)},
		{"0xff", bytes.Repeat([]byte{0xff}, 64)},
	} {
		for _, listener := range []string{"broker", "nameserver", "notify"} {
			t.Run(tc.name+" on "+listener, func(t *testing.T) {
				answer, closed := attack(t, s.Addr[listener], tc.give, 20*time.Second)
				if !closed && len(answer) == 0 {
					t.Errorf("neither an answer nor an end in 20 s")
				}
			})
		}
	}
	serves(t, s)
	if after := logEnd(t, s); after != before {
		t.Errorf("the log grew from %d to %d", before, after)
	}
}

func TestHalfAFrameCostsOthersNothing(t *testing.T) {
	s := server(t)
	for range 64 {
		c, err := net.Dial("tcp", s.Addr["broker"])
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		if _, err := c.Write([]byte{0, 0, 0x10, 0, 0, 0, 0, 200, '{'}); err != nil {
			t.Fatal(err)
		}
	}
	serves(t, s)
}

func TestBadRequestsAreAnsweredAndTheConnectionSurvives(t *testing.T) {
	s := start(t, t.TempDir()) // where nobody else writes
	topic := rmq.Unique("Bad")
	createTopic(t, s, topic, 4)
	send := func(kv ...string) map[string]string {
		m := map[string]string{"a": "P", "b": topic, "c": "TBW102", "d": "4", "e": "0", "f": "0", "g": "1700000000000", "h": "0", "i": "", "j": "0", "k": "false", "m": "false"}
		for i := 0; i+1 < len(kv); i += 2 {
			if kv[i+1] == "<none>" {
				delete(m, kv[i])
			} else {
				m[kv[i]] = kv[i+1]
			}
		}
		return m
	}
	const illegal = 13 // MESSAGE_ILLEGAL
	before := logEnd(t, s)
	c := dial(t, s, "broker")
	for _, tc := range []struct {
		name   string
		code   int
		fields map[string]string
		body   []byte
		want   []int  // codes that RocketMQ clients understand for it
		remark string // what the remark must name
	}{
		{"a code that nobody knows", 31999, nil, nil, []int{3}, "31999"},
		{"a send without a topic", raw.CodeSendV2, send("b", "<none>"), []byte("x"), []int{1, 29}, "topic"},
		{"a send without a queue", raw.CodeSendV2, send("e", "<none>"), []byte("x"), []int{1, 29}, "queueId"},
		{"a queue id that is no number", raw.CodeSendV2, send("e", "seven"), []byte("x"), []int{1, 29}, "seven"},
		{"a queue id out of range", raw.CodeSendV2, send("e", "4"), []byte("x"), []int{29}, "4"},
		{"a topic with a blank", raw.CodeSendV2, send("b", "a b"), []byte("x"), []int{29}, "a b"},
		{"a topic that is too long", raw.CodeSendV2, send("b", strings.Repeat("t", 128)), []byte("x"), []int{29}, "127"},
		{"a system topic", raw.CodeSendV2, send("b", "SCHEDULE_TOPIC_XXXX"), []byte("x"), []int{16}, "SCHEDULE_TOPIC_XXXX"},
		{"our own log's topic, law 10", raw.CodeSendV2, send("b", "rmq_sys_fusion_oq"), []byte("x"), []int{16}, "rmq_sys_fusion_oq"},
		{"an unknown topic with an unknown template", raw.CodeSendV2, send("b", rmq.Unique("none"), "c", "none"), []byte("x"), []int{17}, "none"},
		{"an empty body", raw.CodeSendV2, send(), nil, []int{illegal}, "body"},
		{"a body over the limit", raw.CodeSendV2, send(), make([]byte, 4<<20+1), []int{illegal}, "4194304"},
		{"properties over the limit", raw.CodeSendV2, send("i", "k\x01"+strings.Repeat("v", 40000)+"\x02"), []byte("x"), []int{illegal}, "32767"},
		{"a pull of an unknown topic", raw.CodePull, pull(rmq.Unique("none"), "0"), nil, []int{17}, "none"},
		{"a pull of a queue that is not there", raw.CodePull, pull(topic, "9"), nil, []int{29}, "9"},
		{"a pull without an offset", raw.CodePull, without(pull(topic, "0"), "queueOffset"), nil, []int{1, 29}, "queueOffset"},
		{"a topic created with an illegal name", raw.CodeUpdateTopic, map[string]string{"topic": "a b", "defaultTopic": "TBW102", "readQueueNums": "1", "writeQueueNums": "1", "perm": "6",
			"topicFilterType": "SINGLE_TAG", "topicSysFlag": "0", "order": "false"}, nil, []int{1, 29}, "a b"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			var kv []string
			for k, v := range tc.fields {
				kv = append(kv, k, v)
			}
			a, err := c.Do(tc.code, tc.body, kv...)
			if err != nil {
				t.Fatalf("no answer: %v", err)
			}
			remark := raw.Str(a.Header, "remark")
			ok := false
			for _, w := range tc.want {
				ok = ok || a.Code() == w
			}
			if !ok || !strings.Contains(remark, tc.remark) {
				t.Errorf("code %d %q, want one of %v and a remark that names %q", a.Code(), remark, tc.want, tc.remark)
			}
		})
	}
	if after := logEnd(t, s); after != before {
		t.Errorf("the log grew from %d to %d", before, after)
	}
	// The same connection still sends.
	var kv []string
	for k, v := range send() {
		kv = append(kv, k, v)
	}
	if a, err := c.Do(raw.CodeSendV2, []byte("good"), kv...); err != nil || a.Err() != nil {
		t.Errorf("a good send on the same connection: %v %v", err, a.Err())
	}
}

func pull(topic, queue string) map[string]string {
	return map[string]string{"consumerGroup": "bad", "topic": topic, "queueId": queue, "queueOffset": "0", "maxMsgNums": "32", "sysFlag": "4", "commitOffset": "0",
		"suspendTimeoutMillis": "0", "subscription": "*", "subVersion": "0", "expressionType": "TAG"}
}

func without(m map[string]string, field string) map[string]string {
	delete(m, field)
	return m
}

func TestABrokenHeaderIsNotTheEndOfTheBroker(t *testing.T) {
	s := start(t, t.TempDir()) // where nobody else writes
	before := logEnd(t, s)
	for _, header := range []string{`{"code":310,`, `[]`, `null`, `"x"`, `{"code":"many","opaque":1}`, `{"code":99999999999999999999,"opaque":1}`, strings.Repeat(`{"a":`, 10000), "\x00\x01\x02"} {
		b := binary.BigEndian.AppendUint32(nil, uint32(4+len(header)))
		b = binary.BigEndian.AppendUint32(b, uint32(len(header)))
		attack(t, s.Addr["broker"], append(b, header...), 2*time.Second)
		b = binary.BigEndian.AppendUint32(nil, uint32(4+len(header)))
		b = binary.BigEndian.AppendUint32(b, 1<<24|uint32(len(header))) // the same bytes as a binary header
		attack(t, s.Addr["broker"], append(b, header...), 2*time.Second)
	}
	serves(t, s)
	if after := logEnd(t, s); after != before {
		t.Errorf("the log grew from %d to %d", before, after)
	}
}

// An unfinished flood must not become memory: length words that promise much and bring little.
func TestPromisedBytesAreNotAllocated(t *testing.T) {
	s := server(t)
	before, err := s.Usage()
	if err != nil {
		t.Fatal(err)
	}
	var all []io.Closer
	defer func() {
		for _, c := range all {
			_ = c.Close()
		}
	}()
	for range 200 {
		c, err := net.Dial("tcp", s.Addr["broker"])
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, c)
		b := binary.BigEndian.AppendUint32(nil, 15<<20) // below the frame limit
		b = binary.BigEndian.AppendUint32(b, 100)
		if _, err := c.Write(append(b, "{"...)); err != nil {
			t.Fatal(err)
		}
	}
	serves(t, s)
	after, err := s.Usage()
	if err != nil {
		t.Fatal(err)
	}
	if grown := after.Anonymous - before.Anonymous; grown > 200<<20 {
		t.Errorf("200 connections that promise 15 MiB each cost %s MiB", strconv.FormatInt(grown>>20, 10))
	}
}
