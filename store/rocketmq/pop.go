package rocketmq

import (
	"cmp"
	"encoding/json"
	"fmt"
	"slices"
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

// popKey names a check point, as acknowledgements do.
type popKey struct {
	topic, group   string
	queue          int32
	start, popTime int64
}

// popOpen is a check point that the revive service has not judged.
type popOpen struct {
	invisible int64
	offsets   []int64
	done      uint64 // by index in offsets
}

// pop takes a record of a revive topic, or of one that waits for it. A check point is written before its acknowledgements, both wait in
// TimerTopic first, and the revive service goes through what has come into the revive topic: so a check point is judged when it is
// found there below the service's offset, and open at any other place.
func (o *Open) pop(v record.View, topic string) {
	p, err := DecodePop(v)
	if err != nil || p.Topic == "" || p.Group == "" {
		return // the service passes over it as well
	}
	k := popKey{o.name(p.Topic), o.name(p.Group), p.Queue, p.Start, p.PopTime}
	if p.Kind != PopCheckPoint {
		for _, c := range o.pops[k] {
			for _, n := range p.Offsets {
				if i := slices.Index(c.offsets, n); i >= 0 {
					c.done |= 1 << i
				}
			}
		}
		return
	}
	if string(v.Topic()) == TimerTopic && !o.p.Wheel && v.QueueOffset() < o.p.Timer.QueueOffset {
		return // it will not come into the revive topic
	}
	same := func(c *popOpen) bool { return c.invisible == p.Invisible }
	if string(v.Topic()) != TimerTopic {
		if last, ok := o.p.Revive[topic][v.QueueID()]; ok && v.QueueOffset() <= last {
			if left := slices.DeleteFunc(o.pops[k], same); len(left) > 0 {
				o.pops[k] = left
			} else {
				delete(o.pops, k)
			}
			return
		}
	}
	// One that could not be judged is written again with another time and a part of the messages.
	if !slices.ContainsFunc(o.pops[k], same) {
		o.pops[k] = append(o.pops[k], &popOpen{invisible: p.Invisible, offsets: p.Offsets, done: p.Done})
	}
}

// name returns one copy of a name that many check points have.
func (o *Open) name(s string) string {
	if n, ok := o.names[s]; ok {
		return n
	}
	o.names[s] = s
	return s
}

// Popped are the messages that pop consumers have not acknowledged, by topic, queue, offset and group; each once for a group, at the
// last time that it is due.
func (o *Open) Popped() []Popped {
	var all []Popped
	for k, cs := range o.pops {
		for _, c := range cs {
			for i, n := range c.offsets {
				if c.done&(1<<i) == 0 && n >= 0 {
					all = append(all, Popped{k.topic, k.group, k.queue, n, k.popTime, k.popTime + c.invisible})
				}
			}
		}
	}
	slices.SortFunc(all, func(a, b Popped) int {
		return cmp.Or(cmp.Compare(a.Topic, b.Topic), cmp.Compare(a.Queue, b.Queue), cmp.Compare(a.Offset, b.Offset), cmp.Compare(a.Group, b.Group), cmp.Compare(b.Due, a.Due))
	})
	return slices.CompactFunc(all, func(a, b Popped) bool {
		return a.Topic == b.Topic && a.Queue == b.Queue && a.Offset == b.Offset && a.Group == b.Group
	})
}
