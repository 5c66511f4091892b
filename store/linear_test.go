package store_test

import (
	"encoding/binary"
	"flag"
	"fmt"
	"math/rand/v2"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"

	"github.com/fusionmq/fusionmq/store"
	"github.com/fusionmq/fusionmq/store/meta"
	"github.com/fusionmq/fusionmq/store/queue"
	"github.com/fusionmq/fusionmq/store/record"
	"github.com/fusionmq/fusionmq/store/vfs"
)

var (
	linearSeeds = flag.Int("linear.seeds", 8, "how many histories the linearizability test makes")
	linearSeed  = flag.Uint64("linear.seed", 0, "make the history of this seed only")
)

// linearCall is what is called, of one list of messages: a queue, or a topic over all its queues in address order. Or it is a send of a message that is to be
// stored once, of one id.
type linearCall struct {
	list   string
	once   bool
	append bool
	id     uint32 // of an append: the message
	from   int    // of a read: the first place that it wants
	most   int    // and how many; 0 asks for the range only
}

// linearAnswer is what came back.
type linearAnswer struct {
	place   int    // of an append: its place in the list, counted from 0; of a send that is stored once: the address
	again   bool   // of a send that is stored once: it was there
	ids     string // of a read: the messages, 4 bytes each
	end     int    // of a range: one more than the last place
	problem string // what no list answers
}

func linearID(id uint32) string { return string(binary.BigEndian.AppendUint32(nil, id)) }

// linearModel is a list that only grows at its end: each append gives the next place, reads see all that is in it. The state is the ids of its
// messages, 4 bytes each. Of an id that is stored once the state is the address of the first send, and all others are answered that.
var linearModel = porcupine.Model{
	Partition: func(history []porcupine.Operation) (parts [][]porcupine.Operation) {
		of := map[string]int{}
		for _, o := range history {
			list := o.Input.(linearCall).list
			i, ok := of[list]
			if !ok {
				i = len(parts)
				of[list], parts = i, append(parts, nil)
			}
			parts[i] = append(parts[i], o)
		}
		return parts
	},
	Init: func() any { return "" },
	Step: func(state, input, output any) (bool, any) {
		s, c, a := state.(string), input.(linearCall), output.(linearAnswer)
		n := len(s) / 4
		switch {
		case a.problem != "":
			return false, s
		case c.once:
			return a.again == (s != "") && (!a.again || s == fmt.Sprint(a.place)), fmt.Sprint(a.place)
		case c.append:
			return a.place == n, s + linearID(c.id)
		case c.most == 0:
			return a.end == n, s
		}
		from, to := min(c.from, n), min(c.from+c.most, n)
		return a.ids == s[4*from:4*to], s
	},
	DescribeOperation: func(input, output any) string { return fmt.Sprintf("%+v: %+v", input, output) },
}

// linear is one history in the making. Its clock counts calls and returns, so a call that begins after another one has
// returned has the greater number.
type linear struct {
	t     testing.TB
	s     *store.Store
	clock atomic.Int64
	ids   atomic.Uint32

	mu      sync.Mutex
	history []porcupine.Operation
	sends   map[string][]linearSend // by topic
	again   []linearSend            // sends of what was there, as reads of their one place
	stored  map[int64]uint32        // of sends that are stored once: the message by its address
}

// linearSend is an append, whose place in its topic is known when all have ended.
type linearSend struct {
	address int64
	op      porcupine.Operation
}

func newLinear(t testing.TB, s *store.Store) *linear {
	return &linear{t: t, s: s, sends: map[string][]linearSend{}, stored: map[int64]uint32{}}
}

func (l *linear) note(client int, call, back int64, in linearCall, out linearAnswer) porcupine.Operation {
	o := porcupine.Operation{ClientId: client, Input: in, Call: call, Output: out, Return: back}
	l.history = append(l.history, o)
	return o
}

// append sends messages in one call. They become visible one after the other, so each is an append of its own in the history.
func (l *linear) append(client int, topic string, queues []int32) {
	ms, rs, ids := make([]store.Message, len(queues)), make([]store.Result, len(queues)), make([]uint32, len(queues))
	for i, q := range queues {
		ids[i] = l.ids.Add(1)
		ms[i] = store.Message{Topic: topic, Queue: q, Body: []byte(linearID(ids[i]))}
	}
	call := l.clock.Add(1)
	l.s.Append(ms, rs)
	back := l.clock.Add(1)
	l.mu.Lock()
	defer l.mu.Unlock()
	for i, r := range rs {
		if r.Err != nil {
			l.t.Errorf("append to %s: %v", topic, r.Err)
			continue
		}
		in := linearCall{list: fmt.Sprint(topic, "/", queues[i]), append: true, id: ids[i]}
		o := l.note(client, call, back, in, linearAnswer{place: int(r.QueueOffset)})
		l.sends[topic] = append(l.sends[topic], linearSend{r.Address, o})
	}
}

// once sends a message that is to be stored once. The first one is an append like others; who is told that it was there can read it there.
func (l *linear) once(client int, topic string, id int32, n int) {
	var rs [1]store.Result
	m := l.ids.Add(1)
	call := l.clock.Add(1)
	l.s.Append([]store.Message{{Topic: topic, Queue: id, Body: []byte(linearID(m)), Properties: onceProps(n), Once: true}}, rs[:])
	back := l.clock.Add(1)
	r := &rs[0]
	l.mu.Lock()
	defer l.mu.Unlock()
	if r.Err != nil {
		l.t.Errorf("append to %s: %v", topic, r.Err)
		return
	}
	l.note(client, call, back, linearCall{list: fmt.Sprint("once ", n), once: true}, linearAnswer{place: int(r.Address), again: r.Repeated})
	if r.Repeated {
		in := linearCall{from: int(r.QueueOffset), most: 1}
		l.again = append(l.again, linearSend{r.Address, porcupine.Operation{ClientId: client, Input: in, Call: back, Return: l.clock.Add(1)}})
		return
	}
	l.stored[r.Address] = m
	in := linearCall{list: fmt.Sprint(topic, "/", id), append: true, id: m}
	l.sends[topic] = append(l.sends[topic], linearSend{r.Address, l.note(client, call, back, in, linearAnswer{place: int(r.QueueOffset)})})
}

// read reads a part of a queue, or its range.
func (l *linear) read(client int, topic string, id int32, from, most int) {
	q := l.s.Queue(topic, id, true)
	in, out := linearCall{list: fmt.Sprint(topic, "/", id), from: from, most: most}, linearAnswer{}
	es := make([]queue.Entry, most)
	call := l.clock.Add(1)
	if most == 0 {
		low, high := q.Range()
		if out.end = int(high); low != 0 {
			out.problem = fmt.Sprint("the range begins at ", low)
		}
	} else if n, err := q.Read(int64(from), es); err != nil {
		out.problem = err.Error()
	} else {
		for i, e := range es[:n] {
			l.see(&out, e, topic, id, int64(from+i))
		}
	}
	back := l.clock.Add(1)
	l.mu.Lock()
	defer l.mu.Unlock()
	l.note(client, call, back, in, out)
}

// readTopic reads all of a topic.
func (l *linear) readTopic(client int, topic string) {
	const most = 4096 // more than any history has
	es := make([]store.TopicEntry, most)
	in, out := linearCall{list: topic, most: most}, linearAnswer{}
	call := l.clock.Add(1)
	for _, e := range es[:l.s.ReadTopic(topic, 0, es)] {
		l.see(&out, e.Entry, topic, e.Queue, e.QueueOffset)
	}
	back := l.clock.Add(1)
	l.mu.Lock()
	defer l.mu.Unlock()
	l.note(client, call, back, in, out)
}

// see adds the message of an entry: a visible entry has a record, which says the same.
func (l *linear) see(out *linearAnswer, e queue.Entry, topic string, id int32, offset int64) {
	b, release, err := l.s.Record(e)
	if err != nil {
		out.problem = err.Error()
		return
	}
	defer release()
	v, err := record.Parse(b)
	switch {
	case err != nil:
		out.problem = err.Error()
	case string(v.Topic()) != topic || v.QueueID() != id || v.QueueOffset() != offset || v.PhysicalOffset() != e.Address:
		out.problem = fmt.Sprintf("the entry of %s/%d at %d leads to the record of %s/%d at %d", topic, id, offset, v.Topic(), v.QueueID(), v.QueueOffset())
	default:
		out.ids += string(v.Body())
	}
}

// ended adds the appends to the lists of the topics: there a message's place is that of its address.
func (l *linear) ended() []porcupine.Operation {
	lists := map[int64]string{}
	for _, sends := range l.sends {
		for _, s := range sends {
			lists[s.address] = s.op.Input.(linearCall).list
		}
	}
	for _, s := range l.again {
		in, out := s.op.Input.(linearCall), linearAnswer{ids: linearID(l.stored[s.address])}
		if in.list = lists[s.address]; in.list == "" {
			out.problem = fmt.Sprintf("an answer names %d, where nothing was stored once", s.address)
		}
		l.note(s.op.ClientId, s.op.Call, s.op.Return, in, out)
	}
	for topic, sends := range l.sends {
		slices.SortFunc(sends, func(a, b linearSend) int { return int(a.address - b.address) })
		for i, s := range sends {
			in := s.op.Input.(linearCall)
			in.list = topic
			l.note(s.op.ClientId, s.op.Call, s.op.Return, in, linearAnswer{place: i})
		}
	}
	return l.history
}

// linearHistory has goroutines append to the queues of two topics and read them at the same time.
func linearHistory(t testing.TB, seed uint64) []porcupine.Operation {
	const clients, calls, queues = 6, 40, 2
	var n atomic.Uint64
	fsys := vfs.Intercept(vfs.NewMem(), func(vfs.Op) error {
		if rand.New(rand.NewPCG(seed, n.Add(1))).IntN(2) == 0 { // others run in the middle of what the store does
			runtime.Gosched()
		}
		return nil
	})
	s := open(t, store.Options{Dir: "/s", FS: fsys, SegmentBytes: 64 << 10, FlushInterval: time.Millisecond})
	topics := []string{"Async", "Sync"}
	addTopic(t, s, "Async", meta.Async)
	addTopic(t, s, "Sync", meta.Sync)
	l := newLinear(t, s)
	var wg sync.WaitGroup
	for c := range clients {
		rng := rand.New(rand.NewPCG(seed, uint64(1000+c)))
		wg.Go(func() {
			for range calls {
				topic, id := topics[rng.IntN(2)], rng.Int32N(queues)
				switch rng.IntN(8) {
				case 0, 1:
					l.append(c, topic, []int32{id})
				case 2:
					l.append(c, topic, []int32{id, rng.Int32N(queues), rng.Int32N(queues)})
				case 3:
					l.read(c, topic, id, rng.IntN(40), 1+rng.IntN(400))
				case 4:
					l.read(c, topic, id, 0, 0)
				case 5:
					l.readTopic(c, topic)
				case 6, 7:
					l.once(c, topic, id, rng.IntN(25)) // whatever topic: the id counts
				}
			}
		})
	}
	wg.Wait()
	return l.ended()
}

// Appends and reads are as if each happened at one moment between its call and its return: offsets have no gaps, what was
// answered is seen by every read that begins afterwards, by queue and over the topic, and what was seen stays. Of sends of one id the first is
// stored, and who is told that it was there can read it.
func TestAppendAndReadAreLinearizable(t *testing.T) {
	for i := range *linearSeeds {
		seed := *linearSeed
		if seed == 0 {
			seed = rand.Uint64()
		}
		t.Run(fmt.Sprintf("seed=%d", seed), func(t *testing.T) {
			h := linearHistory(t, seed)
			if r := porcupine.CheckOperationsTimeout(linearModel, h, time.Minute); r != porcupine.Ok {
				t.Fatalf("history of %d calls: %s; again with -linear.seed=%d", len(h), r, seed)
			}
		})
		if *linearSeed != 0 && i == 0 {
			break
		}
	}
}

// The checker tells: each fault, put into a history that is none, is found.
func TestLinearizabilityCheckFindsFaults(t *testing.T) {
	good := linearHistory(t, 1)
	if !porcupine.CheckOperations(linearModel, good) {
		t.Fatal("the history is not linearizable before anything is changed")
	}
	// Calls of the whole topic and of ranges behind everything have one right answer each.
	late := good[0].Return
	end := map[string]string{}
	for _, o := range good {
		late = max(late, o.Return)
	}
	for _, o := range good {
		if c := o.Input.(linearCall); c.append {
			s, at := end[c.list], 4*(o.Output.(linearAnswer).place+1)
			if len(s) < at {
				s += strings.Repeat("\x00", at-len(s))
			}
			end[c.list] = s[:at-4] + linearID(c.id) + s[at:]
		}
	}
	const list = "Async/0"
	all := end[list]
	n := len(all) / 4
	read := func(ids string) porcupine.Operation {
		return porcupine.Operation{Input: linearCall{list: list, most: n + 10}, Output: linearAnswer{ids: ids}, Call: late + 1, Return: late + 2}
	}
	sent := func(place int, call int64) porcupine.Operation {
		return porcupine.Operation{Input: linearCall{list: list, append: true, id: 1 << 30}, Output: linearAnswer{place: place}, Call: call, Return: call + 1}
	}
	sendOnce := func(address int, again bool, call int64) porcupine.Operation {
		return porcupine.Operation{Input: linearCall{list: "once more", once: true}, Output: linearAnswer{place: address, again: again}, Call: call, Return: call + 1}
	}
	for name, c := range map[string]struct {
		more []porcupine.Operation
		ok   bool
	}{
		"none":                           {[]porcupine.Operation{read(all), sent(n, late+3)}, true},
		"answered, not visible":          {[]porcupine.Operation{read(all[:len(all)-4])}, false},
		"visible before its record":      {[]porcupine.Operation{read(all + linearID(0))}, false},
		"visible before it was sent":     {[]porcupine.Operation{read(all + linearID(1<<30)), sent(n, late+3)}, false},
		"two in the other order":         {[]porcupine.Operation{read(all[4:8] + all[:4] + all[8:])}, false},
		"an offset left out":             {[]porcupine.Operation{sent(n+1, late+3)}, false},
		"an offset given twice":          {[]porcupine.Operation{sent(n-1, late+3)}, false},
		"an id stored twice":             {[]porcupine.Operation{sendOnce(77, false, late+1), sendOnce(78, false, late+3)}, false},
		"an id not stored at all":        {[]porcupine.Operation{sendOnce(77, true, late+1)}, false},
		"answered another one's place":   {[]porcupine.Operation{sendOnce(77, false, late+1), sendOnce(78, true, late+3)}, false},
		"answered the first one's place": {[]porcupine.Operation{sendOnce(77, false, late+1), sendOnce(77, true, late+1), sendOnce(77, true, late+3)}, true},
		"seen, and not seen again":       {[]porcupine.Operation{{Input: linearCall{list: list}, Output: linearAnswer{end: n - 1}, Call: late + 1, Return: late + 2}}, false},
		"an entry whose record is wrong": {[]porcupine.Operation{{Input: linearCall{list: list, most: 1}, Output: linearAnswer{problem: "x"}, Call: late + 1, Return: late + 2}}, false},
	} {
		if got := porcupine.CheckOperations(linearModel, append(slices.Clone(good), c.more...)); got != c.ok {
			t.Errorf("%s: linearizable is %v", name, got)
		}
	}
}

// A topic that asks for memory is answered before its messages are visible: the one durability that is not linearizable, and so the proof that a
// store that answers early is found out.
func TestMemoryTopicsAreNotLinearizable(t *testing.T) {
	hold := make(chan struct{})
	var holding atomic.Bool
	fsys := vfs.Intercept(vfs.NewMem(), func(o vfs.Op) error {
		if holding.Load() && o.Kind == "write" && strings.Contains(o.Name, "commitlog/0") {
			<-hold
		}
		return nil
	})
	s := open(t, store.Options{Dir: "/s", FS: fsys, SegmentBytes: 64 << 10})
	addTopic(t, s, "M", meta.Memory)
	l := newLinear(t, s)
	holding.Store(true)
	l.append(0, "M", []int32{0})
	l.read(1, "M", 0, 0, 10)
	close(hold)
	if err := s.Flush(t.Context()); err != nil {
		t.Fatal(err)
	}
	if r := porcupine.CheckOperationsTimeout(linearModel, l.ended(), time.Minute); r != porcupine.Illegal {
		t.Errorf("a message that was answered and not visible: %s", r)
	}
}
