package rocketmq

import (
	"crypto/sha256"
	"encoding/binary"
	"io"
	"iter"
	"math"
	"strconv"
	"strings"

	"github.com/fusionmq/fusionmq/store/record"
)

// Message is where a message lies and where it is to go.
type Message struct {
	Position    int64
	Size        int32
	QueueOffset int64  // in the broker's own topic
	RealTopic   string // that it is for
	RealQueue   int32
}

// Half is a transaction that nobody had decided.
type Half struct {
	Message
	StoreTime int64 // milliseconds since 1970
	// CommittedAt is the position of the record that a commit has put into the topic although no mark says so, -1 when there is
	// none: marks are written late, and a broker that was killed has lost some. Such a half was decided.
	CommittedAt int64
	Checks      int32 // how often the producers were asked
}

// Delay is a message that waits for its time.
type Delay struct {
	Message
	Level int   // of ScheduleTopic; 0 for TimerTopic
	Due   int64 // milliseconds since 1970
}

// DefaultLevels are the delays of levels 1 to 18 in milliseconds, which a broker can be configured otherwise.
var DefaultLevels = []int64{1e3, 5e3, 10e3, 30e3, 60e3, 120e3, 180e3, 240e3, 300e3, 360e3, 420e3, 480e3, 540e3, 600e3, 1200e3, 1800e3, 3600e3, 7200e3}

// Table is an ordered map on the disk, whose keys are ordered as bytes. What is open may be more than memory holds.
type Table interface {
	Get(key *[24]byte, value *[32]byte) bool
	// Put adds or replaces a row; fresh is a promise that there is none of this key.
	Put(key *[24]byte, value *[32]byte, fresh bool)
	// Delete removes a row that is there.
	Delete(key *[24]byte)
	// Scan calls fn for the rows with from <= key < to in order until it returns false.
	Scan(from, to *[24]byte, fn func(key *[24]byte, value *[32]byte) bool)
}

// Open finds what was open when a broker stopped. Give it every record of the log in order; it keeps what is open as of the last.
type Open struct {
	// Due looks up when a message of a schedule queue is due, ok false when that is not known; then, and when Due is nil,
	// DefaultLevels say. The broker's own consume queue has it.
	Due func(level int, offset int64) (ms int64, ok bool)

	p    Progress
	rows Table // of halves, delays, timers and pops

	topics    []string // by number in a row
	topic     map[string]uint32
	popNames  []popName // the same
	popNumber map[popName]uint32
}

// NewOpen begins with what the configuration says, and an empty table.
func NewOpen(p Progress, t Table) *Open {
	return &Open{p: p, rows: t, topic: map[string]uint32{}, popNumber: map[popName]uint32{}}
}

// Rows of the table, all numbers big-endian:
//
//	key    0 1 kind   4 4 level, of a delay   8 8 queue offset, or of rowPlace the position
//	       of rowNewest 1 23 a hash of topic and key
//	       of rowPop    1 6 pop time   7 9 a hash of what names the check point, and of the first offset   16 8 milliseconds from the pop until it is due
//	       of rowPopped 1 4 number of topic and group   5 4 queue   9 8 offset   17 7 due time, the latest first
//	value  of rowHalf   0 8 position   8 8 store time   16 4 size   20 4 number of the topic   24 4 queue   28 4 checks
//	       of rowPlace  0 8 queue offset   8 8 position of the commit, -1 without one
//	       of rowDelay  0 8 position   8 8 due time   16 4 size   20 4 number of the topic   24 4 queue
//	       of rowNewest 0 8 queue offset
//	       of rowPop    0 8 what is open, a bit each   8 4 number of topic and group   12 4 queue   16 8 offset of bit 0   24 8 pop time
//	       of rowPopped 0 8 pop time   8 8 due time
const (
	rowHalf   = 1 + iota
	rowPlace  // finds a half by its position
	rowDelay  // level 0: a timer
	rowNewest // the newest timer of a topic and key
	rowPop    // a check point, or a part of one
	rowPopped // a message that is open in one
)

type (
	rowKey   = [24]byte
	rowValue = [32]byte
)

func keyOf(kind byte, level int, n int64) (k rowKey) {
	k[0] = kind
	binary.BigEndian.PutUint32(k[4:], uint32(level))
	binary.BigEndian.PutUint64(k[8:], uint64(n))
	return k
}

func newestKey(topic, key string) (k rowKey) {
	h := sha256.New()
	_, _ = io.WriteString(h, topic) // a hash takes all
	_, _ = h.Write([]byte{0})
	_, _ = io.WriteString(h, key)
	copy(k[:], h.Sum(nil))
	k[0] = rowNewest
	return k
}

func numbers(a, b int64) (v rowValue) {
	binary.BigEndian.PutUint64(v[:], uint64(a))
	binary.BigEndian.PutUint64(v[8:], uint64(b))
	return v
}

func first(v *rowValue) int64  { return int64(binary.BigEndian.Uint64(v[:])) }
func second(v *rowValue) int64 { return int64(binary.BigEndian.Uint64(v[8:])) }

// encode is the row of a message with a time and one more number.
func (o *Open) encode(m *Message, time int64, n int32) rowValue {
	t, ok := o.topic[m.RealTopic]
	if !ok {
		t = uint32(len(o.topics))
		o.topics = append(o.topics, m.RealTopic)
		o.topic[m.RealTopic] = t
	}
	v := numbers(m.Position, time)
	binary.BigEndian.PutUint32(v[16:], uint32(m.Size))
	binary.BigEndian.PutUint32(v[20:], t)
	binary.BigEndian.PutUint32(v[24:], uint32(m.RealQueue))
	binary.BigEndian.PutUint32(v[28:], uint32(n))
	return v
}

func (o *Open) decode(k *rowKey, v *rowValue) (m Message, time int64, n int32) {
	be := binary.BigEndian
	m = Message{Position: first(v), Size: int32(be.Uint32(v[16:])), QueueOffset: int64(be.Uint64(k[8:])), RealQueue: int32(be.Uint32(v[24:]))}
	if t := be.Uint32(v[20:]); int64(t) < int64(len(o.topics)) {
		m.RealTopic = o.topics[t]
	}
	return m, second(v), int32(be.Uint32(v[28:]))
}

// Record takes the next record.
func (o *Open) Record(v record.View) {
	if topic := reviveTopic(v); topic != "" {
		o.pop(v, topic)
		return
	}
	switch string(v.Topic()) {
	case HalfTopic:
		if v.QueueID() == 0 && v.QueueOffset() >= o.p.Half {
			m := message(v)
			o.put(keyOf(rowHalf, 0, m.QueueOffset), o.encode(&m, v.StoreTime(), int32(min(max(number(v, PropChecks), 0), math.MaxInt32))))
			o.put(keyOf(rowPlace, 0, m.Position), numbers(m.QueueOffset, -1))
		}
	case OpTopic:
		if tag, _ := v.Property(record.PropTags); string(tag) == "d" {
			for _, offset := range DecodeOp(v.Body()) {
				o.decide(offset)
			}
		}
	case ScheduleTopic:
		level := int(v.QueueID()) + 1
		if offset := v.QueueOffset(); level > 0 && offset >= o.p.Levels[level] {
			m := message(v)
			o.put(keyOf(rowDelay, level, offset), o.encode(&m, o.due(level, v), 0))
		}
	case TimerTopic:
		o.timer(v)
	default:
		if v.TxType() == record.FlagTxCommit {
			k, value := keyOf(rowPlace, 0, v.PreparedOffset()), rowValue{}
			if o.rows.Get(&k, &value) {
				o.put(k, numbers(first(&value), v.PhysicalOffset()))
			}
		}
	}
}

func (o *Open) put(k rowKey, v rowValue) { o.rows.Put(&k, &v, false) }

// decide takes a half out.
func (o *Open) decide(offset int64) {
	k, v := keyOf(rowHalf, 0, offset), rowValue{}
	if !o.rows.Get(&k, &v) {
		return
	}
	o.rows.Delete(&k)
	if k = keyOf(rowPlace, 0, first(&v)); o.rows.Get(&k, &v) {
		o.rows.Delete(&k)
	}
}

func (o *Open) due(level int, v record.View) int64 {
	if o.Due != nil {
		if ms, ok := o.Due(level, v.QueueOffset()); ok {
			return ms
		}
	}
	if level > len(DefaultLevels) {
		return v.StoreTime() + 1000
	}
	return v.StoreTime() + DefaultLevels[level-1]
}

func (o *Open) timer(v record.View) {
	out := number(v, PropTimerOut)
	m := message(v)
	var n, old rowValue
	// open finds the newest timer of a key, if it is open.
	open := func(k *rowKey) (at rowKey, ok bool) {
		if ok = o.rows.Get(k, &n); ok {
			at = keyOf(rowDelay, 0, first(&n))
			ok = o.rows.Get(&at, &old)
		}
		return at, ok
	}
	if key, ok := v.Property(PropTimerDelete); ok {
		k := newestKey(m.RealTopic, strings.TrimPrefix(string(key), m.RealTopic+"+"))
		if at, ok := open(&k); ok && second(&old) == out {
			o.rows.Delete(&at)
			o.rows.Delete(&k)
		}
		return
	}
	if key, _ := v.Property(record.PropUniqKey); len(key) > 0 {
		// A message that rolls is put into the topic again; the newest record counts.
		k := newestKey(m.RealTopic, string(key))
		if at, ok := open(&k); ok {
			o.rows.Delete(&at)
		}
		o.put(k, numbers(m.QueueOffset, 0))
	}
	if m.QueueOffset < o.p.Timer.QueueOffset && (out < o.p.Timer.ReadTime || !o.p.Wheel) {
		return // delivered
	}
	o.put(keyOf(rowDelay, 0, m.QueueOffset), o.encode(&m, out, 0))
}

func message(v record.View) Message {
	topic, _ := v.Property(PropRealTopic)
	return Message{
		Position: v.PhysicalOffset(), Size: v.Size(), QueueOffset: v.QueueOffset(),
		RealTopic: string(topic), RealQueue: int32(number(v, PropRealQueue)),
	}
}

func number(v record.View, name string) int64 {
	b, _ := v.Property(name)
	n, err := strconv.ParseInt(string(b), 10, 64)
	if err != nil {
		return 0
	}
	return n
}

// Halves are the undecided transactions, in the order of the log.
func (o *Open) Halves() iter.Seq[Half] {
	return func(yield func(Half) bool) {
		from, to := keyOf(rowHalf, 0, 0), keyOf(rowHalf+1, 0, 0)
		o.rows.Scan(&from, &to, func(k *rowKey, v *rowValue) bool {
			h := Half{CommittedAt: -1}
			h.Message, h.StoreTime, h.Checks = o.decode(k, v)
			place, at := keyOf(rowPlace, 0, h.Position), rowValue{}
			if o.rows.Get(&place, &at) {
				h.CommittedAt = second(&at)
			}
			return yield(h)
		})
	}
}

// Delays are the messages that wait for their time: timers, then one level after the other, each in the order of the log.
func (o *Open) Delays() iter.Seq[Delay] {
	return func(yield func(Delay) bool) {
		from, to := keyOf(rowDelay, 0, 0), keyOf(rowDelay+1, 0, 0)
		o.rows.Scan(&from, &to, func(k *rowKey, v *rowValue) bool {
			d := Delay{Level: int(binary.BigEndian.Uint32(k[4:]))}
			d.Message, d.Due, _ = o.decode(k, v)
			return yield(d)
		})
	}
}

// DecodeOp reads the body of a record of OpTopic: the offsets of the halves that were decided. What is no number is passed over.
func DecodeOp(body []byte) []int64 {
	var all []int64
	for part := range strings.SplitSeq(string(body), ",") {
		if n, err := strconv.ParseInt(strings.TrimSpace(part), 10, 64); err == nil && n >= 0 {
			all = append(all, n)
		}
	}
	return all
}

// AppendOp appends the body of such a record.
func AppendOp(b []byte, offsets []int64) []byte {
	for _, n := range offsets {
		b = append(strconv.AppendInt(b, n, 10), ',')
	}
	return b
}

// LightQueue is a further queue that a record is in.
type LightQueue struct {
	Name   string // a topic of one queue
	Offset int64
}

// maxLight is above every offset that a broker has given. A client may have written anything, and behind an offset others follow.
const maxLight = 1 << 62

// LightQueues are those of a record; a broker that does not have them on has given the record no offsets, and so it has none.
func LightQueues(v record.View) []LightQueue {
	topic := string(v.Topic())
	if strings.HasPrefix(topic, "%RETRY%") || strings.HasPrefix(topic, "rmq_sys_") || topic == ScheduleTopic {
		return nil
	}
	names, ok := v.Property(PropLight)
	if !ok {
		return nil
	}
	offsets, _ := v.Property(PropLightOffsets)
	ns, os := strings.Split(string(names), ","), strings.Split(string(offsets), ",")
	if len(ns) != len(os) {
		return nil
	}
	var all []LightQueue
	for i, name := range ns {
		n, err := strconv.ParseInt(os[i], 10, 64)
		if err != nil || n < 0 || n > maxLight || !strings.HasPrefix(name, LightPrefix) || strings.Contains(name, "/") {
			continue
		}
		all = append(all, LightQueue{name, n})
	}
	return all
}
