// Package brokerdir writes store directories as an Apache RocketMQ 5.x broker leaves them, for tests that need more in one than can be
// checked in: a log with its consume queues, timer wheel and timer log, tables and checkpoint.
//
// Start with [Create], add what is to wait, and [Writer.Close]. It holds a buffer for each queue and no message.
package brokerdir

import (
	"encoding/json"
	"fmt"
	"net/netip"
	"path/filepath"
	"strconv"

	"github.com/fusionmq/fusionmq/store/record"
	"github.com/fusionmq/fusionmq/store/rocketmq"
	"github.com/fusionmq/fusionmq/store/vfs"
)

// Names in a directory.
const (
	Topic       = "Orders" // of every message, with Queues queues
	Queues      = 4
	Group       = "billing"
	RetryTopic  = "%RETRY%" + Group
	ReviveTopic = rocketmq.RevivePrefix + "DefaultCluster"

	invisible = 60_000 // milliseconds of a pop
)

// Options of a directory.
type Options struct {
	FS           vfs.FS
	Dir          string
	SegmentBytes int64 // of the log; the broker's mappedFileSizeCommitLog
	Now          int64 // milliseconds since 1970: when everything in it was stored
	Killed       bool  // leaves abort, as a broker that was not stopped
}

// Writer writes one directory.
type Writer struct {
	o      Options
	log    stream
	queues map[queueID]*stream
	ends   map[queueID]int64
	timer  timer
	n      int64 // things
	buf    []byte
	err    error
	half   int64            // offset of the first half that is open
	levels map[string]int64 // offsets of delay levels: what is below was delivered
}

type queueID struct {
	topic string
	id    int32
}

// queueFile is the size of a file of a consume queue.
const queueFile = 6_000_000

// Create begins a directory, which is empty.
func Create(o Options) *Writer {
	w := &Writer{o: o, queues: map[queueID]*stream{}, ends: map[queueID]int64{}, levels: map[string]int64{}}
	w.log = stream{fs: o.FS, dir: filepath.Join(o.Dir, "commitlog"), size: o.SegmentBytes}
	w.timer.init(&o)
	return w
}

var host = netip.MustParseAddrPort("127.0.0.1:10911")

// put appends a record and its queue entry. tags is the entry's tags code; 0: that of the properties.
func (w *Writer) put(f *record.Fields, tags int64) (position int64, size int32) {
	q := queueID{f.Topic, f.QueueID}
	f.QueueOffset = w.ends[q]
	f.BodyCRC, f.BornTime, f.StoreTime, f.BornHost, f.StoreHost = record.CRC(f.Body), w.o.Now, w.o.Now, host, host
	w.buf = record.Append(w.buf[:0], f)
	b := w.buf
	if left := w.log.left(); int64(len(b))+record.BlankSize > left {
		w.fail(w.log.write(record.AppendBlank(nil, left)))
		w.fail(w.log.roll())
	}
	position = w.log.end
	record.SetPhysicalOffset(b, position)
	w.fail(w.log.write(b))
	if tags == 0 {
		tags = record.TagsCode(f.Properties)
	}
	w.entry(q, rocketmq.Entry{Position: position, Size: int32(len(b)), Tags: tags})
	return position, int32(len(b))
}

func (w *Writer) entry(q queueID, e rocketmq.Entry) {
	s := w.queues[q]
	if s == nil {
		s = &stream{fs: w.o.FS, dir: filepath.Join(w.o.Dir, rocketmq.QueueDir, q.topic, strconv.Itoa(int(q.id))), size: queueFile}
		w.queues[q] = s
	}
	w.fail(s.write(e.Append(nil)))
	w.ends[q]++
}

func (w *Writer) fail(err error) {
	if w.err == nil {
		w.err = err
	}
}

// props are those of the next message.
func (w *Writer) props(more ...string) []byte {
	w.n++
	b := record.AppendProperty(nil, record.PropUniqKey, fmt.Sprintf("7F000001000018B4AAC2%012X", w.n))
	b = record.AppendProperty(b, "WAIT", "true")
	b = record.AppendProperty(b, record.PropTags, "TagA")
	for i := 0; i < len(more); i += 2 {
		b = record.AppendProperty(b, more[i], more[i+1])
	}
	return b
}

var body = []byte("order, paid")

// Levels adds n messages that wait in the queues of delay levels 17 and 18, and one each that was delivered.
func (w *Writer) Levels(n int) {
	for i := range n + 2 {
		level := 17 + i%2
		delay := rocketmq.DefaultLevels[level-1]
		id := int32(i % Queues)
		p := w.props(rocketmq.PropDelay, strconv.Itoa(level), rocketmq.PropRealTopic, Topic, rocketmq.PropRealQueue, strconv.Itoa(int(id)))
		w.put(&record.Fields{Topic: rocketmq.ScheduleTopic, QueueID: int32(level - 1), Body: body, Properties: p}, w.o.Now+delay)
		if i < 2 {
			w.levels[strconv.Itoa(level)] = 1
			w.put(&record.Fields{Topic: Topic, QueueID: id, Body: body, Properties: w.props()}, 0)
		}
	}
}

// Timers adds n messages that wait for times of their own in the timer wheel, within two days.
func (w *Writer) Timers(n int) {
	for i := range n {
		out := (w.o.Now/1000 + 3600 + int64(i)*7919%160_000) * 1000
		p := w.props(rocketmq.PropTimerOut, strconv.FormatInt(out, 10), "TIMER_DELIVER_MS", strconv.FormatInt(out+500, 10),
			rocketmq.PropRealTopic, Topic, rocketmq.PropRealQueue, strconv.Itoa(i%Queues))
		w.toTimer(&record.Fields{Topic: rocketmq.TimerTopic, Body: body, Properties: p}, Topic, out)
	}
}

// toTimer puts a record into the timer topic, and into the wheel.
func (w *Writer) toTimer(f *record.Fields, real string, out int64) {
	at, size := w.put(f, 0)
	w.fail(w.timer.add(out, at, size, record.HashCode(real)))
}

// Halves adds n transactions that nobody has decided. Of those in front of them one was rolled back, and of those between every hundredth.
func (w *Writer) Halves(n int) {
	var ended []byte
	for i := 0; n > 0; i++ {
		p := w.props("TRAN_MSG", "true", rocketmq.PropProducerGroup, "sellers", rocketmq.PropRealTopic, Topic, rocketmq.PropRealQueue, strconv.Itoa(i%Queues))
		offset := w.ends[queueID{rocketmq.HalfTopic, 0}]
		w.put(&record.Fields{Topic: rocketmq.HalfTopic, Body: body, Properties: p}, 0)
		if i%100 != 0 {
			n--
			continue
		}
		if i == 0 {
			w.half = offset + 1
		}
		ended = rocketmq.AppendOp(ended, []int64{offset})
		if len(ended) > 4000 {
			ended = w.decided(ended)
		}
	}
	w.decided(ended)
}

// decided marks halves as decided.
func (w *Writer) decided(offsets []byte) []byte {
	if len(offsets) > 0 {
		w.put(&record.Fields{Topic: rocketmq.OpTopic, Body: offsets, Properties: record.AppendProperty(nil, record.PropTags, "d")}, 0)
	}
	return offsets[:0]
}

// Retries adds n messages that the group has sent back: half of them wait in the queue of delay level 18 for their next attempt, the others lie
// in the group's retry topic and are not consumed.
func (w *Writer) Retries(n int) {
	for i := range n {
		more := []string{"RETRY_TOPIC", Topic, "ORIGIN_MESSAGE_ID", fmt.Sprintf("7F00000100002A9F%016X", w.n)}
		if i%2 == 0 {
			w.put(&record.Fields{Topic: RetryTopic, ReconsumeTimes: 16, Body: body, Properties: w.props(more...)}, 0)
			continue
		}
		const level = 18
		p := w.props(append(more, rocketmq.PropDelay, strconv.Itoa(level), rocketmq.PropRealTopic, RetryTopic, rocketmq.PropRealQueue, "0")...)
		w.put(&record.Fields{Topic: rocketmq.ScheduleTopic, QueueID: level - 1, ReconsumeTimes: 16, Body: body, Properties: p}, w.o.Now+rocketmq.DefaultLevels[level-1])
	}
}

// checkPoint is the body of a check point, with the names that a broker uses.
type checkPoint struct {
	Start     int64   `json:"so"`
	PopTime   int64   `json:"pt"`
	Invisible int64   `json:"it,omitempty"`
	Bits      int64   `json:"bm"`
	Count     int     `json:"n,omitempty"`
	Queue     int32   `json:"q"`
	Topic     string  `json:"t"`
	Group     string  `json:"c"`
	Revive    int64   `json:"ro"`
	Diffs     []int64 `json:"d,omitempty"`
	Broker    string  `json:"bn"`
	Again     string  `json:"rp,omitempty"`
	Ack       int64   `json:"ao,omitempty"`
	Acks      []int64 `json:"aol,omitempty"`
}

// Pops adds n messages that the group was given by pops of batch messages each and has not acknowledged, and one more of every pop that it
// has. Every other check point waits in the timer topic, the others have come into the revive topic.
func (w *Writer) Pops(n, batch int) {
	for at := int64(0); n > 0; at++ {
		id := int32(at % Queues)
		start, k := w.ends[queueID{Topic, id}], min(n, batch)
		ck := checkPoint{Start: start, PopTime: w.o.Now + at, Invisible: invisible, Count: k + 1, Queue: id, Topic: Topic, Group: Group, Broker: "b"}
		for i := range k + 1 {
			w.put(&record.Fields{Topic: Topic, QueueID: id, Body: body, Properties: w.props()}, 0)
			ck.Diffs = append(ck.Diffs, int64(i))
		}
		w.pop(&ck, rocketmq.PopCheckPoint, at%2 == 0)
		w.pop(&checkPoint{Start: start, PopTime: ck.PopTime, Queue: id, Topic: Topic, Group: Group, Broker: "b", Ack: start + int64(k)}, rocketmq.PopAck, at%2 == 0)
		n -= k
	}
}

// pop puts a record for the revive topic into the timer topic, and behind that into the revive topic when its time has come.
func (w *Writer) pop(c *checkPoint, kind rocketmq.PopKind, come bool) {
	b, err := json.Marshal(c)
	w.fail(err)
	out := w.o.Now + invisible
	props := record.AppendProperty(nil, record.PropTags, string(kind))
	wait := record.AppendProperty(props, rocketmq.PropTimerOut, strconv.FormatInt(out, 10))
	wait = record.AppendProperty(record.AppendProperty(wait, rocketmq.PropRealTopic, ReviveTopic), rocketmq.PropRealQueue, "0")
	w.toTimer(&record.Fields{Topic: rocketmq.TimerTopic, Body: b, Properties: wait}, ReviveTopic, out)
	if come {
		w.put(&record.Fields{Topic: ReviveTopic, Body: b, Properties: props}, 0)
	}
}

// Close writes what is left.
func (w *Writer) Close() error {
	for _, s := range w.queues {
		w.fail(s.close())
	}
	w.fail(w.log.close())
	w.fail(w.timer.close())
	w.config()
	return w.err
}

func (w *Writer) config() {
	file := func(name string, b []byte) {
		name = filepath.Join(w.o.Dir, name)
		w.fail(w.o.FS.MkdirAll(filepath.Dir(name)))
		w.fail(vfs.WriteFile(w.o.FS, name, b, ""))
	}
	table := func(name string, doc any) {
		b, err := json.Marshal(doc)
		w.fail(err)
		file(filepath.Join(rocketmq.ConfigDir, name), b)
	}
	topics := map[string]any{}
	for q := range w.queues {
		n := int32(Queues)
		if q.topic == rocketmq.ScheduleTopic {
			n = 18
		}
		topics[q.topic] = map[string]any{"topicName": q.topic, "readQueueNums": n, "writeQueueNums": n, "perm": 6}
	}
	table("topics.json", map[string]any{"topicConfigTable": topics})
	table("subscriptionGroup.json", map[string]any{"subscriptionGroupTable": map[string]any{Group: map[string]any{"groupName": Group, "retryQueueNums": 1, "retryMaxTimes": 16}}})
	offsets := map[string]any{rocketmq.HalfTopic + "@" + rocketmq.TransactionGroup: map[string]int64{"0": w.half}}
	taken := map[string]int64{}
	for id := range int32(Queues) {
		taken[strconv.Itoa(int(id))] = w.ends[queueID{Topic, id}]
	}
	offsets[Topic+"@"+Group] = taken
	table("consumerOffset.json", map[string]any{"offsetTable": offsets})
	table("delayOffset.json", map[string]any{"offsetTable": w.levels})
	file("config/timercheck", rocketmq.TimerCheckpoint{ReadTime: w.o.Now, LogFlushed: w.timer.log.end, QueueOffset: w.ends[queueID{rocketmq.TimerTopic, 0}]}.Encode())
	file("checkpoint", rocketmq.Checkpoint{LogTime: w.o.Now, QueueTime: w.o.Now, IndexTime: w.o.Now}.Encode())
	if w.o.Killed {
		file("abort", []byte("4711"))
	}
}
