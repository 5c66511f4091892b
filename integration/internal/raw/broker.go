package raw

import (
	"encoding/binary"
	"encoding/json"
	"fmt"
	"strconv"
	"sync/atomic"
	"time"
)

// CreateTopic makes a topic with as many read and write queues on the broker behind c.
func CreateTopic(c *Conn, topic string, queues int) error {
	q := strconv.Itoa(queues)
	a, err := c.Do(CodeUpdateTopic, nil, "topic", topic, "defaultTopic", "TBW102", "readQueueNums", q, "writeQueueNums", q,
		"perm", "6", "topicFilterType", "SINGLE_TAG", "topicSysFlag", "0", "order", "false")
	if err == nil {
		err = a.Err()
	}
	return err
}

// Broker asks a name server for the address of the first broker of the cluster.
func Broker(nameServer string) (addr string, err error) {
	c, err := Dial(nameServer)
	if err != nil {
		return "", err
	}
	defer c.Close()
	a, err := c.Do(CodeCluster, nil)
	if err == nil {
		err = a.Err()
	}
	if err != nil {
		return "", err
	}
	// Apache brokers write the keys of brokerAddrs as bare numbers, which JSON does not know.
	if v := value(a.Body, "brokerAddrs"); v != nil {
		for i := range v {
			if v[i] == ':' {
				return Str([]byte(`"a"`+string(v[i:])), "a"), nil
			}
		}
	}
	return "", fmt.Errorf("raw: no broker in %q", a.Body)
}

// Sender sends to one connection with the short header of SEND_MESSAGE_V2, as the published clients do.
type Sender struct {
	C     *Conn
	Group string
	seq   atomic.Uint64
}

// NewSender registers a producer of group on a new connection.
func NewSender(addr, group string) (*Sender, error) {
	c, err := Dial(addr)
	if err != nil {
		return nil, err
	}
	hb, err := json.Marshal(map[string]any{"clientID": fmt.Sprintf("127.0.0.1@%p", c), "consumerDataSet": []any{},
		"producerDataSet": []any{map[string]string{"groupName": group}}})
	if err != nil {
		return nil, err
	}
	a, err := c.Do(CodeHeartbeat, hb)
	if err == nil {
		err = a.Err()
	}
	if err != nil {
		c.Close()
		return nil, err
	}
	s := &Sender{C: c, Group: group}
	s.seq.Store(uint64(time.Now().UnixNano()))
	return s, nil
}

// Sent is where a message was stored.
type Sent struct {
	Queue  int32
	Offset int64
	MsgID  string // the offset id
}

// ID is a unique message id of 32 hex digits that counts up from sequence number n.
func ID(n uint64) string { return fmt.Sprintf("7F00000100010000%016X", n) }

// Go sends one message without waiting. done runs on the connection's reader.
func (s *Sender) Go(topic string, queue int, body []byte, done func(Sent, error)) {
	n, now := s.seq.Add(1), time.Now().UnixMilli()
	s.C.Go(CodeSendV2, func(e []byte) []byte { return s.header(e, topic, queue, n, now, false) }, func(a Answer, err error) {
		if err == nil {
			err = a.Err()
		}
		if err != nil {
			done(Sent{}, err)
			return
		}
		done(Sent{Queue: int32(Int(a.Header, "queueId")), Offset: Int(a.Header, "queueOffset"), MsgID: Str(a.Header, "msgId")}, nil)
	}, body)
}

func (s *Sender) header(e []byte, topic string, queue int, n uint64, now int64, batch bool) []byte {
	e = append(e, `"a":"`...)
	e = append(e, s.Group...)
	e = append(e, `","b":"`...)
	e = append(e, topic...)
	e = append(e, `","c":"TBW102","d":"4","e":"`...)
	e = strconv.AppendInt(e, int64(queue), 10)
	e = append(e, `","f":"0","g":"`...)
	e = strconv.AppendInt(e, now, 10)
	e = append(e, `","h":"0","i":"`...)
	if !batch {
		e = append(e, `UNIQ_KEY\u00017F00000100010000`...)
		e = appendHex(e, n)
		e = append(e, `\u0002WAIT\u0001true\u0002`...)
	}
	e = append(e, `","j":"0","k":"false","m":"`...)
	e = strconv.AppendBool(e, batch)
	return append(e, '"')
}

func appendHex(b []byte, n uint64) []byte {
	for i := 60; i >= 0; i -= 4 {
		b = append(b, "0123456789ABCDEF"[n>>i&15])
	}
	return b
}

// Message is one record of a pull answer; its slices alias the answer.
type Message struct {
	Queue       int32
	QueueOffset int64
	Address     int64
	SysFlag     int32
	StoreTime   int64 // milliseconds
	Body        []byte
	Topic       []byte
	Properties  []byte
}

// Messages walks the body of a pull answer, which is records of RocketMQ's V1 layout one behind the other with IPv4 hosts.
func Messages(b []byte, f func(Message)) error {
	const fixed = 88 // up to and with the body length, 4-byte hosts
	for len(b) > 0 {
		if len(b) < fixed+3 {
			return fmt.Errorf("raw: %d bytes left, less than a record", len(b))
		}
		size := int(binary.BigEndian.Uint32(b))
		if size < fixed+3 || size > len(b) {
			return fmt.Errorf("raw: record of %d bytes in %d", size, len(b))
		}
		m := Message{
			Queue: int32(binary.BigEndian.Uint32(b[12:])), QueueOffset: int64(binary.BigEndian.Uint64(b[20:])),
			Address: int64(binary.BigEndian.Uint64(b[28:])), SysFlag: int32(binary.BigEndian.Uint32(b[36:])),
			StoreTime: int64(binary.BigEndian.Uint64(b[56:])),
		}
		at, short := fixed, false
		take := func(n int) []byte {
			if n < 0 || at+n > size {
				short = true
				return nil
			}
			at += n
			return b[at-n : at]
		}
		m.Body = take(int(binary.BigEndian.Uint32(b[84:])))
		if l := take(1); l != nil {
			m.Topic = take(int(l[0]))
		}
		if l := take(2); l != nil {
			m.Properties = take(int(binary.BigEndian.Uint16(l)))
		}
		if short || at != size {
			return fmt.Errorf("raw: record of %d bytes ends at %d", size, at)
		}
		f(m)
		b = b[size:]
	}
	return nil
}

// Pull asks for up to 32 messages from offset on and, when wait is not zero, lets the broker hold the request that long. next is where to go on.
func Pull(c *Conn, group, topic string, queue int, offset int64, wait time.Duration, f func(Message)) (next int64, err error) {
	sys := 4 // with a subscription
	if wait > 0 {
		sys |= 2 // may be held
	}
	a, err := c.Do(CodePull, nil, "consumerGroup", group, "topic", topic, "queueId", strconv.Itoa(queue), "queueOffset", strconv.FormatInt(offset, 10),
		"maxMsgNums", "32", "sysFlag", strconv.Itoa(sys), "commitOffset", "0", "suspendTimeoutMillis", strconv.FormatInt(wait.Milliseconds(), 10),
		"subscription", "*", "subVersion", "0", "expressionType", "TAG")
	if err != nil {
		return offset, err
	}
	switch a.Code() {
	case 0:
		if err := Messages(a.Body, f); err != nil {
			return offset, err
		}
		fallthrough
	case 19, 20, 21: // nothing there, try at once elsewhere, offset moved
		return Int(a.Header, "nextBeginOffset"), nil
	}
	return offset, a.Err()
}
