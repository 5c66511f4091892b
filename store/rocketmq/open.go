package rocketmq

import (
	"cmp"
	"maps"
	"math"
	"slices"
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
	UniqueKey   string
	StoreTime   int64 // milliseconds since 1970
}

// Half is a transaction that nobody had decided.
type Half struct {
	Message
	ProducerGroup string
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

// Open finds what was open when a broker stopped. Give it every record of the log in order; it keeps what is open as of the last.
type Open struct {
	// Due looks up when a message of a schedule queue is due, ok false when that is not known; then, and when Due is nil,
	// DefaultLevels say. The broker's own consume queue has it.
	Due func(level int, offset int64) (ms int64, ok bool)

	p      Progress
	halves map[int64]*Half // by queue offset
	byPos  map[int64]*Half
	delays map[delayKey]Delay
	timers map[int64]Delay // by queue offset
	newest map[timerKey]int64
	pops   map[popKey][]*popOpen
	names  map[string]string
}

type delayKey struct {
	level  int
	offset int64
}

type timerKey struct{ topic, key string }

// NewOpen begins with what the configuration says.
func NewOpen(p Progress) *Open {
	return &Open{p: p, halves: map[int64]*Half{}, byPos: map[int64]*Half{}, delays: map[delayKey]Delay{}, timers: map[int64]Delay{}, newest: map[timerKey]int64{},
		pops: map[popKey][]*popOpen{}, names: map[string]string{}}
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
			group, _ := v.Property(PropProducerGroup)
			h := &Half{Message: message(v), ProducerGroup: string(group), CommittedAt: -1, Checks: int32(min(max(number(v, PropChecks), 0), math.MaxInt32))}
			o.halves[h.QueueOffset], o.byPos[h.Position] = h, h
		}
	case OpTopic:
		if tag, _ := v.Property(record.PropTags); string(tag) == "d" {
			for _, offset := range DecodeOp(v.Body()) {
				if h := o.halves[offset]; h != nil {
					delete(o.halves, offset)
					delete(o.byPos, h.Position)
				}
			}
		}
	case ScheduleTopic:
		level := int(v.QueueID()) + 1
		if offset := v.QueueOffset(); level > 0 && offset >= o.p.Levels[level] {
			o.delays[delayKey{level, offset}] = Delay{Message: message(v), Level: level, Due: o.due(level, v)}
		}
	case TimerTopic:
		o.timer(v)
	default:
		if v.TxType() == record.FlagTxCommit {
			if h := o.byPos[v.PreparedOffset()]; h != nil {
				h.CommittedAt = v.PhysicalOffset()
			}
		}
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
	if key, ok := v.Property(PropTimerDelete); ok {
		k := timerKey{m.RealTopic, strings.TrimPrefix(string(key), m.RealTopic+"+")}
		if n, ok := o.newest[k]; ok && o.timers[n].Due == out {
			delete(o.timers, n)
			delete(o.newest, k)
		}
		return
	}
	if m.UniqueKey != "" {
		// A message that rolls is put into the topic again; the newest record counts.
		k := timerKey{m.RealTopic, m.UniqueKey}
		if n, ok := o.newest[k]; ok {
			delete(o.timers, n)
		}
		o.newest[k] = m.QueueOffset
	}
	if m.QueueOffset < o.p.Timer.QueueOffset && (out < o.p.Timer.ReadTime || !o.p.Wheel) {
		return // delivered
	}
	o.timers[m.QueueOffset] = Delay{Message: m, Due: out}
}

func message(v record.View) Message {
	topic, _ := v.Property(PropRealTopic)
	key, _ := v.Property(record.PropUniqKey)
	return Message{
		Position: v.PhysicalOffset(), Size: v.Size(), QueueOffset: v.QueueOffset(),
		RealTopic: string(topic), RealQueue: int32(number(v, PropRealQueue)), UniqueKey: string(key), StoreTime: v.StoreTime(),
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
func (o *Open) Halves() []Half {
	var all []Half
	for _, n := range slices.Sorted(maps.Keys(o.halves)) {
		all = append(all, *o.halves[n])
	}
	return all
}

// Delays are the messages that wait for their time, levels and timers, in the order of the log.
func (o *Open) Delays() []Delay {
	all := slices.AppendSeq(slices.Collect(maps.Values(o.delays)), maps.Values(o.timers))
	slices.SortFunc(all, func(a, b Delay) int { return cmp.Compare(a.Position, b.Position) })
	return all
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
		if err != nil || n < 0 || !strings.HasPrefix(name, LightPrefix) || strings.Contains(name, "/") {
			continue
		}
		all = append(all, LightQueue{name, n})
	}
	return all
}
