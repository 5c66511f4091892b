package rocketmq

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"iter"
	"math"
	"math/bits"
	"strings"

	"github.com/fusionmq/fusionmq/store/record"
)

// PopKind is what a record of a revive topic says.
type PopKind string

const (
	PopCheckPoint PopKind = "ck"   // messages were handed out and wait for acknowledgement
	PopAck        PopKind = "ack"  // one of them was acknowledged
	PopBatchAck   PopKind = "bAck" // some of them were
)

// Pop is a record of a revive topic.
type Pop struct {
	Kind      PopKind
	Topic     string
	Group     string
	Queue     int32
	Start     int64   // offset of the first message that was handed out
	PopTime   int64   // milliseconds since 1970
	Invisible int64   // of a check point: milliseconds until what is not acknowledged is handed out again
	Count     int     // of a check point: messages
	Offsets   []int64 // of a check point, those of its messages; of an acknowledgement, what is acknowledged
	Done      uint64  // of a check point: bit i is set when Offsets[i] was acknowledged before it was written
	Broker    string
}

// maxPop is the most messages that one pop hands out.
const maxPop = 64

// DecodePop reads a record of a revive topic, or one of TimerTopic that is for a revive topic.
func DecodePop(v record.View) (Pop, error) {
	if topic := reviveTopic(v); topic == "" {
		return Pop{}, fmt.Errorf("pop: topic %q is no revive topic", v.Topic())
	}
	tag, _ := v.Property(record.PropTags)
	return decodePop(PopKind(tag), v.Body())
}

// reviveTopic is the revive topic that a record is in or waits for; empty without one.
func reviveTopic(v record.View) string {
	topic := v.Topic()
	if string(topic) == TimerTopic {
		topic, _ = v.Property(PropRealTopic)
	}
	if !strings.HasPrefix(string(topic), RevivePrefix) {
		return ""
	}
	return string(topic)
}

func decodePop(kind PopKind, body []byte) (Pop, error) {
	var doc struct {
		Start     int64   `json:"so"`
		PopTime   int64   `json:"pt"`
		Invisible int64   `json:"it"`
		Count     int     `json:"n"`
		Queue     int32   `json:"q"`
		Topic     string  `json:"t"`
		Group     string  `json:"c"`
		Diffs     []int64 `json:"d"`
		Bits      int64   `json:"bm"`
		Broker    string  `json:"bn"`
		Ack       int64   `json:"ao"`
		Acks      []int64 `json:"aol"`
	}
	if err := json.Unmarshal(body, &doc); err != nil {
		return Pop{}, fmt.Errorf("pop: %s: %w", kind, err)
	}
	p := Pop{Kind: kind, Topic: doc.Topic, Group: doc.Group, Queue: doc.Queue, Start: doc.Start, PopTime: doc.PopTime, Broker: doc.Broker}
	switch kind {
	case PopCheckPoint:
		if doc.Count < 0 || doc.Count > maxPop || len(doc.Diffs) > maxPop {
			return Pop{}, fmt.Errorf("pop: check point of %d messages, at most %d are possible", max(doc.Count, len(doc.Diffs)), maxPop)
		}
		p.Invisible, p.Count, p.Done = doc.Invisible, doc.Count, uint64(uint32(doc.Bits)) // the broker's map has 32 bits
		for i := range doc.Count {
			d := int64(i) // without differences the offsets follow each other
			if i < len(doc.Diffs) {
				d = doc.Diffs[i]
			}
			p.Offsets = append(p.Offsets, doc.Start+d)
		}
	case PopAck:
		p.Offsets = []int64{doc.Ack}
	case PopBatchAck:
		p.Offsets = doc.Acks
	default:
		return Pop{}, fmt.Errorf("pop: tag %q is not known", kind)
	}
	return p, nil
}

// Popped is a message that a pop consumer was given and has not acknowledged.
type Popped struct {
	Topic, Group string // that it was given to the group from; Topic may be a retry topic
	Queue        int32
	Offset       int64
	PopTime      int64 // milliseconds since 1970
	Due          int64 // when the group gets it again, milliseconds since 1970
}

// popName is whose messages a check point is of. There are no more than topics and groups that belong together.
type popName struct{ topic, group string }

// popSpan is how many offsets one row of a check point speaks for, a bit each.
const popSpan = 64

// popRow is what of a check point is open among popSpan offsets, until the revive service has judged it. One with nothing open says that
// the check point is known and that all was acknowledged.
type popRow struct {
	open    uint64 // bit i: offset first+i
	name    uint32 // number of topic and group
	queue   int32
	first   int64 // a multiple of popSpan
	popTime int64
}

func (r *popRow) encode() (v rowValue) {
	be := binary.BigEndian
	be.PutUint64(v[:], r.open)
	be.PutUint32(v[8:], r.name)
	be.PutUint32(v[12:], uint32(r.queue))
	be.PutUint64(v[16:], uint64(r.first))
	be.PutUint64(v[24:], uint64(r.popTime))
	return v
}

func decodePopRow(v *rowValue) popRow {
	be := binary.BigEndian
	return popRow{be.Uint64(v[:]), be.Uint32(v[8:]), int32(be.Uint32(v[12:])), int64(be.Uint64(v[16:])), int64(be.Uint64(v[24:]))}
}

// popKey is the key of the row that has the offsets from first on of a check point with some invisible time. What else names it, as
// acknowledgements do, is in the hash; the pop time comes first, since records that belong together are near in time.
func (o *Open) popKey(p *Pop, first, invisible int64) (k rowKey) {
	be := binary.BigEndian
	var b [32]byte
	be.PutUint32(b[:], o.popName(popName{p.Topic, p.Group}))
	be.PutUint32(b[4:], uint32(p.Queue))
	be.PutUint64(b[8:], uint64(p.Start))
	be.PutUint64(b[16:], uint64(p.PopTime))
	be.PutUint64(b[24:], uint64(first))
	h := sha256.Sum256(b[:])
	be.PutUint64(k[:], uint64(p.PopTime)&(1<<48-1)<<8) // six bytes, in 1 to 6
	k[0] = rowPop
	copy(k[7:16], h[:])
	be.PutUint64(k[16:], uint64(invisible))
	return k
}

// popName is the number of a name.
func (o *Open) popName(n popName) uint32 {
	i, ok := o.popNumber[n]
	if !ok {
		i = uint32(len(o.popNames))
		o.popNames = append(o.popNames, n)
		o.popNumber[n] = i
	}
	return i
}

// span are some of the offsets between a multiple of popSpan and the next, a bit each.
type span struct {
	first     int64
	all, open uint64
}

// spans sorts offsets into spans. Bit i of done says that offsets[i] is not open. What is no offset is left out.
func spans(offsets []int64, done uint64) (all []span) {
	at := map[int64]int{}
	for i, n := range offsets {
		if n < 0 {
			continue
		}
		first := n &^ (popSpan - 1)
		if len(all) == 0 || all[len(all)-1].first != first { // they mostly follow each other
			if _, ok := at[first]; !ok {
				at[first] = len(all)
				all = append(all, span{first: first})
			}
		}
		s := &all[at[first]]
		bit := uint64(1) << (n - first)
		if s.all |= bit; i >= popSpan || done&(1<<i) == 0 {
			s.open |= bit
		}
	}
	return all
}

// pop takes a record of a revive topic, or of one that waits for it. A check point is written before its acknowledgements, both wait in
// TimerTopic first, and the revive service goes through what has come into the revive topic: so a check point is judged when it is
// found there below the service's offset, and open at any other place.
func (o *Open) pop(v record.View, topic string) {
	p, err := DecodePop(v)
	if err != nil || p.Topic == "" || p.Group == "" {
		return // the service passes over it as well
	}
	if p.Kind != PopCheckPoint {
		for _, s := range spans(p.Offsets, 0) {
			o.acknowledge(&p, &s)
		}
		return
	}
	timer := string(v.Topic()) == TimerTopic
	if timer && !o.p.Wheel && v.QueueOffset() < o.p.Timer.QueueOffset {
		return // it will not come into the revive topic
	}
	last, ok := o.p.Revive[topic][v.QueueID()]
	judged := !timer && ok && v.QueueOffset() <= last
	for _, s := range spans(p.Offsets, p.Done) {
		k, have := o.popKey(&p, s.first, max(p.Invisible, 0)), rowValue{}
		switch known := o.rows.Get(&k, &have); {
		case judged && known:
			o.rows.Delete(&k)
		case !judged && !known: // one that could not be judged is written again with another time and a part of the messages
			r := popRow{s.open, o.popName(popName{p.Topic, p.Group}), p.Queue, s.first, p.PopTime}
			o.put(k, r.encode())
		}
	}
}

// acknowledge takes offsets out of the check points that an acknowledgement names, which differ in their invisible times.
func (o *Open) acknowledge(p *Pop, s *span) {
	from, to := o.popKey(p, s.first, 0), o.popKey(p, s.first, math.MinInt64) // behind all that are not below 0
	for more := true; more; {
		more = false
		var k rowKey
		var r popRow
		o.rows.Scan(&from, &to, func(key *rowKey, v *rowValue) bool {
			k, r, more = *key, decodePopRow(v), true
			return r.open&s.all == 0
		})
		if r.open &= ^s.all; more {
			o.put(k, r.encode())
			from = k // and on behind it
			binary.BigEndian.PutUint64(from[16:], binary.BigEndian.Uint64(k[16:])+1)
		}
	}
}

// popPage is how many check points are in memory while what they have open is sorted.
const popPage = 1 << 10

// maxDue is above every time that is one, and has 56 bits.
const maxDue = 1<<56 - 1

// sortPopped makes a row of every message that is open, so that those of a queue lie behind each other in the table.
func (o *Open) sortPopped() {
	be := binary.BigEndian
	type open struct {
		popRow
		due int64
	}
	page := make([]open, 0, popPage)
	from, to := keyOf(rowPop, 0, 0), keyOf(rowPop+1, 0, 0)
	for more := true; more; {
		page, more = page[:0], false
		o.rows.Scan(&from, &to, func(k *rowKey, v *rowValue) bool {
			if more = len(page) == cap(page); more {
				from = *k
				return false
			}
			if r := decodePopRow(v); r.open != 0 {
				page = append(page, open{r, r.popTime + int64(be.Uint64(k[16:]))})
			}
			return true
		})
		for _, r := range page {
			for ; r.open != 0; r.open &= r.open - 1 {
				k := keyOf(rowPopped, 0, 0)
				be.PutUint32(k[1:], r.name)
				be.PutUint32(k[5:], uint32(r.queue))
				be.PutUint64(k[9:], uint64(r.first)+uint64(bits.TrailingZeros64(r.open)))
				be.PutUint64(k[16:], be.Uint64(k[16:])&^maxDue|uint64(maxDue-min(max(r.due, 0), maxDue))) // the last time first
				o.put(k, numbers(r.popTime, r.due))
			}
		}
	}
}

// Popped are the messages that pop consumers have not acknowledged, by topic and group, queue and offset; each once for a group, at the
// last time that it is due. It is for after the last record.
func (o *Open) Popped() iter.Seq[Popped] {
	return func(yield func(Popped) bool) {
		o.sortPopped()
		be := binary.BigEndian
		var last rowKey
		from, to := keyOf(rowPopped, 0, 0), keyOf(rowPopped+1, 0, 0)
		o.rows.Scan(&from, &to, func(k *rowKey, v *rowValue) bool {
			name := be.Uint32(k[1:])
			if [17]byte(k[:17]) == [17]byte(last[:17]) || int64(name) >= int64(len(o.popNames)) {
				return true
			}
			last = *k
			n := o.popNames[name]
			return yield(Popped{n.topic, n.group, int32(be.Uint32(k[5:])), int64(be.Uint64(k[9:])), first(v), second(v)})
		})
	}
}
