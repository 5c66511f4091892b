package store

import (
	"bytes"
	"strconv"
	"time"

	"github.com/fusionmq/fusionmq/store/log"
	"github.com/fusionmq/fusionmq/store/queue"
	"github.com/fusionmq/fusionmq/store/record"
	"github.com/fusionmq/fusionmq/store/state"
	"github.com/fusionmq/fusionmq/store/view"
)

// Messages that wait: halves until they are committed, delayed ones until they are due. They are records of RocketMQ's topics for
// them, with the place that they are for in REAL_TOPIC and REAL_QID, and the state holds them. What ends the wait is an operation.

// MaxDelay is the longest delay of a message with a time, in milliseconds: 40 days.
const MaxDelay = 40 * 24 * 3600_000

// firstCheck is how old a half is, in milliseconds, before it is asked about for the first time, unless it says so itself.
const firstCheck = 6_000

// propImmunity is the property of a half with the seconds before its first check.
const propImmunity = "CHECK_IMMUNITY_TIME_IN_SECONDS"

// delayLevels is RocketMQ's default table.
var delayLevels = []time.Duration{
	time.Second, 5 * time.Second, 10 * time.Second, 30 * time.Second,
	time.Minute, 2 * time.Minute, 3 * time.Minute, 4 * time.Minute, 5 * time.Minute, 6 * time.Minute, 7 * time.Minute, 8 * time.Minute, 9 * time.Minute,
	10 * time.Minute, 20 * time.Minute, 30 * time.Minute, time.Hour, 2 * time.Hour,
}

// waitTopics are the topics in which messages wait.
type waitTopics struct{ half, schedule, timer *topic }

func isWaitTopic(name string) bool {
	return name == HalfTopic || name == ScheduleTopic || name == TimerTopic
}

// stored is the topic in which m, a message for another one, is stored, with its queue and properties there; nil when m waits for nothing.
func (s *Store) stored(m *Message, now int64) (t *topic, id int32, props []byte, err error) {
	switch {
	case m.Half:
		t = s.waits.half
	case m.DelayLevel > 0:
		t, id = s.waits.schedule, min(m.DelayLevel, int32(len(s.levels.spans.last())))-1
	case m.DeliverAt > now:
		if m.DeliverAt > now+MaxDelay {
			return nil, 0, nil, &FieldError{"time of delivery in ms from now", m.DeliverAt - now, "at most 3456000000 (40 days)"}
		}
		t = s.waits.timer
	default:
		return nil, 0, nil, nil
	}
	props = record.AppendWithout(make([]byte, 0, len(m.Properties)+len(m.Topic)+64), m.Properties, view.PropRealTopic, view.PropRealQueue, view.PropTimerOut)
	if t == s.waits.timer {
		props = record.AppendProperty(props, view.PropTimerOut, strconv.FormatInt(m.DeliverAt, 10))
	}
	props = record.AppendProperty(props, view.PropRealTopic, m.Topic)
	props = record.AppendProperty(props, view.PropRealQueue, strconv.Itoa(int(m.Queue)))
	if n := len(props); n > MaxPropertiesBytes {
		return nil, 0, nil, &FieldError{"length of properties with those of a message that waits", int64(n), "0 to 32767 bytes"}
	}
	return t, id, props, nil
}

// addWaiting adds the record of m, a message for real, to the batch if it waits for something.
func (s *Store) addWaiting(b *log.Batch, real *topic, m *Message) (ok bool, err error) {
	t, id, props, err := s.stored(m, s.o.Now().UnixMilli())
	if t == nil || err != nil {
		return false, err
	}
	w := *m
	w.Queue, w.Properties, w.SysFlag = id, props, m.SysFlag&^record.FlagTxMask
	s.add(b, t, &w)
	b.Items[len(b.Items)-1].Sync = real.sync.Load()
	real.noteWaiting(b, m.Properties)
	return true, nil
}

// realPlace is where a record that waits is for.
func realPlace(v record.View) (topic string, id int32, ok bool) {
	name, ok := v.Property(view.PropRealTopic)
	if !ok || len(name) == 0 || len(name) > record.MaxTopicBytes {
		return "", 0, false
	}
	if q, ok := v.Property(view.PropRealQueue); ok {
		if n, err := strconv.ParseUint(string(q), 10, 31); err == nil && n <= queue.MaxQueueID {
			id = int32(n)
		}
	}
	return string(name), id, true
}

// number is the value of a property in decimal, or -1.
func number(v record.View, name string) int64 {
	text, ok := v.Property(name)
	if !ok {
		return -1
	}
	n, err := strconv.ParseInt(string(bytes.TrimSpace(text)), 10, 63)
	if err != nil {
		return -1
	}
	return n
}

// waits gives a record of a topic in which messages wait to the state machine.
func (d *dispatcher) waits(v record.View) {
	s := d.s
	topic, id, ok := realPlace(v)
	if !ok {
		return // of no use to anybody
	}
	h := state.Head{Topic: topic, Queue: id, Address: v.PhysicalOffset(), Position: v.PhysicalOffset(), Size: v.Size(), Time: v.StoreTime()}
	due, half, kind := int64(0), false, state.ViewDelay
	switch string(v.Topic()) {
	case HalfTopic:
		due, half = firstCheck, true
		if n := number(v, propImmunity); n >= 0 && n <= MaxDelay/1000 {
			due = n * 1000
		}
		due += h.Time
	case ScheduleTopic:
		due = h.Time + delayOf(s.levels.spans.at(h.Address), v.QueueID()+1)
	default:
		if due, kind = number(v, view.PropTimerOut), state.ViewTimer; due < 0 {
			return // RocketMQ's request to cancel one, or nonsense
		}
	}
	s.machine.Lock()
	s.machine.SetTime(h.Time)
	if half {
		s.machine.Half(&h, due)
	} else {
		s.machine.Delay(&h, due, kind)
	}
	s.machine.Unlock()
	if !half && !d.replaying {
		s.publisher.expect(due, kind == state.ViewTimer)
	}
}
