package broker

// SEND_MESSAGE (10) and SEND_MESSAGE_V2 (310); batches are in send_batch.go.
//
// All sends of one burst become one store.Append: one lock, one write of the log, one write of the answers. Checks are in
// RocketMQ's order (spec/remoting.md 3.3). Stricter than RocketMQ, as docs/compat.md lists: an empty body is 13 and not a
// NullPointerException, and a topic without write permission is 16.

import (
	"errors"
	"math/rand/v2"
	"strings"
	"time"

	"github.com/fusionmq/fusionmq/metaq/remoting"
	"github.com/fusionmq/fusionmq/metaq/server"
	"github.com/fusionmq/fusionmq/store"
	"github.com/fusionmq/fusionmq/store/meta"
	"github.com/fusionmq/fusionmq/store/record"
)

// maxProperties is the largest property text the record format can hold.
const maxProperties = 32767

// Bits of a message's sysFlag that say it is not an ordinary message: the two of a transaction that is not committed.
const txPrepared, txRollback = 0x4, 0xC

// sent is a message on its way through Append.
type sent struct {
	req  *server.Request
	uniq string // UNIQ_KEY; aliases the frame or the burst's arena
	more int    // messages of its batch that follow it; theirs are empty
}

// maxAppend bounds one Append: a burst of large bodies is stored in several, so that the log's buffer stays small.
const maxAppend = 4 << 20

// send checks a message and puts it in line; a refusal is answered at once.
func (w *work) send(r *server.Request) {
	if err := w.checkSend(r); err != nil {
		w.refuseSend(r, err)
	} else if w.pending >= maxAppend {
		w.append()
	}
}

func (w *work) checkSend(r *server.Request) error {
	s := &w.sendHeader
	if err := s.Read(&r.Header); err != nil {
		return err
	}
	if s.Batch {
		return w.checkBatch(r, s)
	}
	ref, topic, err := w.b.sendTopic(s)
	if err != nil {
		return err
	}
	if dead, letters, err := w.b.deadSend(s, topic, r.Version); err != nil {
		return err
	} else if letters != nil {
		ref, topic = dead, letters
	}
	if err := w.b.checkMessage(s, r.Body); err != nil {
		return err
	}
	a := &w.asked
	if err := a.read(s.Properties); err != nil {
		return err
	}
	var at int64
	if a.waits {
		if at, err = a.deliverAt(time.Now().UnixMilli()); err != nil {
			return err
		}
	}
	half := a.half && (s.ReconsumeTimes == 0 || a.level == 0) // consumers before 4.6.1 send it along when they send a message back
	if !half {
		err = checkFlags(s)
	} else if err = w.checkHalf(); err == nil {
		a.level, at = 0, 0 // they count from the commit
	}
	if err != nil {
		return err
	}
	props := w.properties(s.Properties, nil)
	q := s.QueueID
	if q < 0 {
		q = rand.Int32N(topic.WriteQueues)
	}
	w.sends = append(w.sends, sent{req: r, uniq: a.uniq})
	w.messages = append(w.messages, store.Message{
		Topic: topic.Name, Ref: ref, Queue: q, Flag: s.Flag, SysFlag: s.SysFlag, BornTime: s.BornTimestamp, BornHost: w.burst.Conn.Remote(),
		ReconsumeTimes: s.ReconsumeTimes, Body: r.Body, Properties: props, DelayLevel: a.level, DeliverAt: at, Half: half,
	})
	w.pending += len(r.Body) + len(props)
	return nil
}

// sendTopic finds the topic of a send or makes it.
func (b *Broker) sendTopic(s *remoting.SendHeader) (store.TopicRef, *meta.Topic, error) {
	ref, topic := b.store.FindTopic(s.Topic)
	if topic == nil || closedTopics[s.Topic] || strings.HasPrefix(s.Topic, ownPrefix) {
		if err := checkSendTopic(s.Topic); err != nil {
			return ref, nil, err
		}
		g, retry, err := b.retryGroup(s.Topic)
		if err != nil {
			return ref, nil, err
		}
		if retry {
			if err := b.retryTopic(g); err != nil {
				return ref, nil, err
			}
		} else if topic, err = b.autoCreateTopic(s.Topic, s.DefaultTopic, s.DefaultTopicQueueNums); err != nil {
			return ref, nil, err
		} else if topic == nil {
			return ref, nil, noTopic(s.Topic)
		}
		if ref, topic = b.store.FindTopic(s.Topic); topic == nil {
			return ref, nil, noTopic(s.Topic)
		}
	}
	if n := max(topic.WriteQueues, topic.ReadQueues); s.QueueID >= n {
		return ref, nil, refuse(remoting.RespInvalidParameter, "request queueId[%d] is illegal, topic [%s] has readQueueNums=%d, writeQueueNums=%d", s.QueueID, topic.Name, topic.ReadQueues, topic.WriteQueues)
	}
	if topic.Perm&meta.PermWrite == 0 {
		return ref, nil, refuse(remoting.RespNoPermission, "the topic[%s] sending message is forbidden: its perm is %d, without the write bit 2", topic.Name, topic.Perm)
	}
	return ref, topic, nil
}

// checkMessage refuses what cannot be stored, and what could be stored but would then not be what its sender asked for.
func (b *Broker) checkMessage(s *remoting.SendHeader, body []byte) error {
	if len(body) == 0 {
		return refuse(remoting.RespMessageIllegal, "the message body is empty; it must have 1 to %d bytes", b.cfg.MaxBodyBytes)
	}
	if len(body) > b.cfg.MaxBodyBytes {
		return refuse(remoting.RespMessageIllegal, "the message body has %d bytes, the limit is %d bytes", len(body), b.cfg.MaxBodyBytes)
	}
	if len(s.Properties) > maxProperties {
		return refuse(remoting.RespMessageIllegal, "the message properties have %d bytes, the limit is %d bytes", len(s.Properties), maxProperties)
	}
	return nil
}

// checkFlags refuses a message that says to be a half, or rolled back, by its flags alone.
func checkFlags(s *remoting.SendHeader) error {
	switch s.SysFlag & txRollback {
	case txPrepared, txRollback:
		return refuse(remoting.RespMessageIllegal, "sysFlag %#x marks a transactional message, and property TRAN_MSG=true is not there", s.SysFlag)
	}
	return nil
}

// retryGroup finds the group of a retry topic, or makes it where groups are made by being used; retry is false for any
// other topic.
func (b *Broker) retryGroup(topic string) (g *meta.Group, retry bool, err error) {
	name, retry := strings.CutPrefix(topic, meta.RetryPrefix)
	if !retry {
		return nil, false, nil
	}
	g, err = b.group(name)
	return g, true, err
}

// properties gives the text to store: what the client sent, without what only the broker may say, and with what its batch
// has in common and the broker adds. Additions that do not fit any more are left out, so that the client's own text is
// always stored whole. w.asked is what was read of the text; its uniq is the key that the text gets, if it had none. The result
// aliases the client's text or the arena of w.
func (w *work) properties(text string, common []byte) []byte {
	start := len(w.arena)
	switch a := &w.asked; {
	case a.level > 0 && a.timer():
		w.arena = record.AppendWithout(w.arena, stringBytes(text), "CLUSTER", "MSG_REGION", "TRACE_ON", "POP_CK", propDelaySec, propDelayMS, propDeliverMS)
	case a.dirty:
		w.arena = record.AppendWithout(w.arena, stringBytes(text), "CLUSTER", "MSG_REGION", "TRACE_ON", "POP_CK")
	default:
		w.arena = append(w.arena, text...)
	}
	if n := len(w.arena); n > start && w.arena[n-1] != 2 {
		if n-start == maxProperties {
			return w.arena[start:] // no room even for the separator; readers do not need the last one
		}
		w.arena = append(w.arena, 2)
	}
	if len(common) > 0 {
		w.appendMissing(start, common)
	}
	if w.asked.uniq == "" {
		if len(w.arena)-start+len("UNIQ_KEY")+2+uniqLen <= maxProperties {
			w.arena = append(w.arena, "UNIQ_KEY\x01"...)
			at := len(w.arena)
			w.arena = w.b.ids.append(w.arena)
			w.asked.uniq = bytesString(w.arena[at:])
			w.arena = append(w.arena, 2)
		}
	}
	if len(w.arena)-start+len(w.b.added) <= maxProperties {
		w.arena = append(w.arena, w.b.added...)
	}
	return w.arena[start:]
}

// append stores the messages in line and answers them.
func (w *work) append() {
	n := len(w.messages)
	if n == 0 {
		return
	}
	if cap(w.results) < n {
		w.results = make([]store.Result, n)
	}
	rs := w.results[:n]
	w.b.store.Append(w.messages, rs)
	var t tally
	for i := 0; i < n; {
		s := &w.sends[i]
		end := i + 1 + s.more
		w.answer(s, w.messages[i:end], rs[i:end], &t)
		i = end
	}
	w.b.stats.put(t.stored, t.bytes)
	clear(w.messages) // they point into the frames
	clear(w.sends)
	w.messages, w.sends, w.arena, w.pending = w.messages[:0], w.sends[:0], w.arena[:0], 0
}

// tally counts what an append has stored.
type tally struct {
	stored, bytes int64
	to            *flow // of topic: most bursts are for one
	topic         string
}

func (t *tally) add(w *work, m *store.Message, size int32) {
	t.stored++
	t.bytes += int64(size)
	if t.to == nil || m.Topic != t.topic {
		t.to, t.topic = w.b.traffic.in(m.Ref, m.Topic), m.Topic
	}
	t.to.add(1, int(size))
}

// answer answers a message, or a batch of them.
func (w *work) answer(s *sent, ms []store.Message, rs []store.Result, t *tally) {
	code, failed := remoting.RespSuccess, error(nil)
	for i := range rs {
		if err := rs[i].Err; err != nil {
			if !errors.Is(err, store.ErrFlushTimeout) {
				failed = err
				continue
			}
			code = remoting.RespFlushDiskTimeout
		}
		t.add(w, &ms[i], rs[i].Size)
	}
	if failed != nil {
		w.refuseSend(s.req, w.b.storeError(failed))
		return
	}
	e := w.burst.Reply(s.req, code, "")
	w.id = record.AppendOffsetID(w.id[:0], w.b.cfg.StoreHost, rs[0].Address)
	for i := range rs[1:] {
		w.id = record.AppendOffsetID(append(w.id, ','), w.b.cfg.StoreHost, rs[1+i].Address)
	}
	e.Text("msgId", w.id)
	e.Int("queueId", int64(rs[0].Queue)) // of the first one, when the topic stores messages once and this one is a repetition
	e.Int("queueOffset", rs[0].QueueOffset)
	if s.uniq != "" {
		e.String("transactionId", s.uniq)
	}
	if ms[0].DeliverAt > 0 && s.uniq != "" {
		w.recallHandle(e, &ms[0], s.uniq)
	}
	w.b.sendFields(e)
	w.burst.End(nil)
}

// sendFields are in every answer to a send, refusals too.
func (b *Broker) sendFields(e *remoting.Encoder) {
	e.String("MSG_REGION", b.cfg.Region)
	e.String("TRACE_ON", "true")
}

func (w *work) refuseSend(r *server.Request, err error) {
	code, remark := codeOf(err)
	e := w.burst.Reply(r, code, remark)
	if code != remoting.RespSystemError && code != remoting.RespRequestCodeNotSupported {
		w.b.sendFields(e)
	}
	w.burst.End(nil)
	w.b.stats.refused(1)
}

// storeError turns an error of Append into an answer.
func (b *Broker) storeError(err error) error {
	switch {
	case errors.Is(err, store.ErrBadMessage), errors.Is(err, store.ErrTooLarge):
		return refuse(remoting.RespMessageIllegal, "%s", err)
	case errors.Is(err, store.ErrNoSpace), errors.Is(err, store.ErrFailed), errors.Is(err, store.ErrClosed), errors.Is(err, store.ErrNotIndexed), errors.Is(err, store.ErrUnavailable):
		return refuse(remoting.RespServiceNotAvailable, "%s", err)
	case errors.Is(err, store.ErrUnknownTopic): // deleted meanwhile
		return refuse(remoting.RespTopicNotExist, "%s", err)
	case errors.Is(err, store.ErrSystemTopic):
		return refuse(remoting.RespNoPermission, "%s", err)
	}
	return err
}
