package broker

// SEND_BATCH_MESSAGE (320), and 10 and 310 with batch=true: as in RocketMQ that field alone says that the body is a batch.
//
// Each message of a batch becomes a record of its own, in one queue with offsets that follow each other, under the header's sysFlag: a
// compressed flag speaks of each body, since nobody compresses a batch as a whole. A batch is stored whole or not at all. Stricter than
// RocketMQ, as docs/compat.md lists: 5.3.3 writes the header's UNIQ_KEY over those of the messages, stores messages that ask for a delay
// or a transaction as ordinary ones, and answers a batch that cannot be read with code 1 and a Java exception.

import (
	"math/rand/v2"
	"strings"

	"github.com/fusionmq/fusionmq/metaq/remoting"
	"github.com/fusionmq/fusionmq/metaq/server"
	"github.com/fusionmq/fusionmq/store"
	"github.com/fusionmq/fusionmq/store/meta"
	"github.com/fusionmq/fusionmq/store/record"
)

// maxBatch is the most messages of a batch: a body of 4 MiB has room for 180,000, which would take forty times that in memory.
const maxBatch = 32768

// checkBatch checks a batch and puts its messages in line, all or none.
func (w *work) checkBatch(r *server.Request, s *remoting.SendHeader) error {
	if strings.HasPrefix(s.Topic, meta.RetryPrefix) {
		return refuse(remoting.RespMessageIllegal, "batch request does not support retry group %s", clip(s.Topic))
	}
	ref, topic, err := w.b.sendTopic(s)
	if err != nil {
		return err
	}
	if err := w.b.checkMessage(s, r.Body); err != nil {
		return err
	}
	if err := w.asked.read(s.Properties); err != nil {
		return err
	}
	if err := w.asked.ordinary(); err != nil {
		return err
	}
	if err := checkFlags(s); err != nil {
		return err
	}
	uniq := w.asked.uniq
	q := s.QueueID
	if q < 0 {
		q = rand.Int32N(topic.WriteQueues)
	}
	start := len(w.arena)
	w.arena = record.AppendWithout(w.arena, stringBytes(s.Properties), "UNIQ_KEY", "CLUSTER", "MSG_REGION", "TRACE_ON", "POP_CK")
	common := w.arena[start:]
	first := len(w.messages)
	m := store.Message{
		Topic: topic.Name, Ref: ref, Queue: q, SysFlag: s.SysFlag, BornTime: s.BornTimestamp, BornHost: w.burst.Conn.Remote(), ReconsumeTimes: s.ReconsumeTimes,
	}
	pending := 0
	for rest := r.Body; len(rest) > 0; m.Joined = true {
		n := len(w.messages) - first
		var in remoting.BatchMessage
		if in, rest, err = remoting.NextBatchMessage(rest); err == nil {
			err = w.checkMember(n, &in)
		}
		if err == nil {
			m.Flag, m.Body, m.Properties = in.Flag, in.Body, w.properties(in.Properties, common)
		}
		if err != nil {
			clear(w.messages[first:])
			w.messages, w.sends, w.arena = w.messages[:first], w.sends[:first], w.arena[:start]
			_, why := codeOf(err)
			return refuse(remoting.RespMessageIllegal, "message %d of the batch: %s; nothing of the batch is stored", n, why)
		}
		w.messages, w.sends = append(w.messages, m), append(w.sends, sent{})
		pending += len(m.Body) + len(m.Properties)
	}
	w.sends[first] = sent{req: r, uniq: uniq, more: len(w.messages) - first - 1}
	w.pending += pending
	w.b.stats.batches.Add(1)
	return nil
}

// checkMember refuses what the store would refuse when others of the batch are stored already, and what would wait for something. n is its
// place in the batch.
func (w *work) checkMember(n int, m *remoting.BatchMessage) error {
	switch {
	case n == maxBatch:
		return refuse(remoting.RespMessageIllegal, "a batch may have %d messages", maxBatch)
	case len(m.Body) == 0:
		return refuse(remoting.RespMessageIllegal, "its body is empty")
	case len(m.Properties) > maxProperties:
		return refuse(remoting.RespMessageIllegal, "its properties have %d bytes, the limit is %d bytes", len(m.Properties), maxProperties)
	case strings.IndexByte(m.Properties, 0) >= 0:
		return refuse(remoting.RespMessageIllegal, "its properties have a zero byte")
	}
	if err := w.asked.read(m.Properties); err != nil {
		return err
	}
	return w.asked.ordinary()
}

// appendMissing adds the entries of common that are not in the text at the end of the arena, which begins at start, while there is room.
func (w *work) appendMissing(start int, common []byte) {
	for name, value := range record.Properties(common) {
		if _, ok := record.Property(w.arena[start:], bytesString(name)); ok {
			continue
		}
		if len(w.arena)-start+len(name)+len(value)+2 <= maxProperties {
			w.arena = record.AppendProperty(w.arena, name, value)
		}
	}
}
