package notify

import (
	"context"
	"encoding/binary"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"net/netip"
	"os"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/fusionmq/fusionmq/notify/delivery"
	"github.com/fusionmq/fusionmq/notify/wire"
	"github.com/fusionmq/fusionmq/store"
	"github.com/fusionmq/fusionmq/store/check"
	"github.com/fusionmq/fusionmq/store/state"
	"github.com/fusionmq/fusionmq/store/vfs"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// world is a service over a real store on a file system in memory, with members that do as the test says, and a clock of
// its own.
type world struct {
	t     testing.TB
	rng   *rand.Rand
	clock atomic.Int64 // milliseconds
	fs    *vfs.Mem
	st    *store.Store
	svc   *Service
	opts  Options
	wrap  func(Store) Store // nil, or what the service sees instead of the store

	mu       sync.Mutex
	members  []*member
	got      map[key]*history
	taken    map[place]bool // an acknowledgement was processed, and no crash since could have lost it
	wrong    []violation
	sent     map[uint64]string // id -> message type
	nextID   uint64
	restrict string // the one group that send's messages are for
	pub      *Session
	ops      []string
	addr     map[uint64]int64
}

// key is one group's share of one message.
type key struct {
	group string
	id    uint64
}

// place is one group's share of the message at an address.
type place struct {
	group   string
	address int64
}

// violation is a delivery that must not be.
type violation struct {
	place
	attempt int32
}

// history is what a group has seen of a message.
type history struct {
	pushes   int
	attempts []int32
	acked    bool // at least once
}

// member is a subscriber's connection: what it was pushed waits until the test answers.
type member struct {
	w     *world
	group string
	se    *Session
	limit int // most deliveries that it takes; 0: any number
	cut   bool

	inbox []pushed
}

type pushed struct {
	d  Delivery
	id uint64
}

func (m *member) Room() bool {
	m.w.mu.Lock()
	defer m.w.mu.Unlock()
	return m.limit == 0 || len(m.inbox) < m.limit
}

// takes sets the limit.
func (m *member) takes(n int) {
	m.w.mu.Lock()
	m.limit = n
	m.w.mu.Unlock()
}

func (m *member) Kick() {}

func (m *member) Push(d Delivery) {
	m.w.mu.Lock()
	defer m.w.mu.Unlock()
	if m.w.taken[place{m.group, d.Message.Address}] && !m.cut {
		m.w.wrong = append(m.w.wrong, violation{place{m.group, d.Message.Address}, d.Attempt})
	}
	m.inbox = append(m.inbox, pushed{d: d})
}

// newWorld makes a world with the options as change leaves them. wrap, at most one, is put between the service and the store.
func newWorld(t testing.TB, seed uint64, change func(*Options), wrap ...func(Store) Store) *world {
	w := &world{t: t, rng: rand.New(rand.NewPCG(seed, 1)), fs: vfs.NewMem(), got: map[key]*history{}, taken: map[place]bool{}, addr: map[uint64]int64{}, sent: map[uint64]string{}}
	w.clock.Store(1_700_000_000_000)
	for _, f := range wrap {
		w.wrap = f
	}
	rng := rand.New(rand.NewPCG(seed, 2))
	w.opts = Options{
		Delivery:      delivery.Config{Rand: rng.IntN},
		FlushInterval: time.Millisecond,
		Log:           slog.New(slog.NewTextHandler(io.Discard, nil)),
		Now:           func() time.Time { return time.UnixMilli(w.clock.Load()) },
	}
	if testing.Verbose() && os.Getenv("NOTIFY_TEST_LOG") != "" {
		w.opts.Log = slog.New(slog.NewTextHandler(os.Stderr, nil))
	}
	// Groups are pumped by different goroutines, and the source of chance is not safe for that.
	var mu sync.Mutex
	w.opts.Delivery.Rand = func(n int) int { mu.Lock(); defer mu.Unlock(); return rng.IntN(n) }
	if change != nil {
		change(&w.opts)
	}
	w.open()
	t.Cleanup(w.close)
	return w
}

func (w *world) open() {
	w.t.Helper()
	w.svc = New(w.opts)
	w.svc.tickEvery = time.Millisecond
	var err error
	w.st, err = store.Open(store.Options{
		Dir: "/store", FS: w.fs, SegmentBytes: 16 << 20, Exchange: w.svc.Exchange(), Observer: &tap{w, w.svc.Observer()}, Now: w.opts.Now,
		Events: func(e store.Event) {
			if e.Level >= 8 {
				w.t.Errorf("store: %s %v", e.Name, e.Attrs)
			}
		},
	})
	if err != nil {
		w.t.Fatal(err)
	}
	var st Store = w.st
	if w.wrap != nil {
		st = w.wrap(st)
	}
	if err := w.svc.Start(st); err != nil {
		w.t.Fatal(err)
	}
	if w.pub, err = w.svc.Open(&member{w: w}, netip.MustParseAddrPort("127.0.0.1:1")); err != nil {
		w.t.Fatal(err)
	}
	if err := w.pub.Metadata([]string{"P-test"}, false); err != nil {
		w.t.Fatal(err)
	}
}

func (w *world) close() {
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	if err := w.svc.Stop(ctx); err != nil {
		w.t.Errorf("Stop: %v", err)
	}
	if err := w.st.Close(); err != nil {
		w.t.Errorf("Close: %v", err)
	}
	if w.t.Failed() {
		return
	}
	r, err := check.Run(context.Background(), check.Options{Dir: "/store", FS: w.fs, Exchange: func() state.Exchange { return New(w.opts).Exchange() }})
	if err == nil {
		err = r.Err()
	}
	if err != nil {
		w.t.Errorf("check of what is left: %v", err)
	}
}

// kill ends the process without a word and starts another one on what it left: everything written, nothing more. With
// flushed, outcomes are written before.
func (w *world) kill(flushed bool) {
	w.t.Helper()
	if flushed {
		w.linger()
		w.settle()
	}
	left := w.fs.CrashClone(rand.New(rand.NewPCG(w.rng.Uint64(), 3)), 1)
	w.mu.Lock()
	for _, m := range w.members {
		m.cut = true
	}
	w.members = nil
	w.ops = append(w.ops, fmt.Sprintf("kill flushed %v", flushed))
	if !flushed {
		clear(w.taken)
	}
	w.mu.Unlock()
	w.close() // of the old one, which nobody sees any more
	w.fs = left
	w.open()
}

// restart stops the service and the store as SIGTERM does, and starts them again.
func (w *world) restart() {
	w.t.Helper()
	w.mu.Lock()
	for _, m := range w.members {
		m.cut = true
	}
	w.members = nil
	w.mu.Unlock()
	w.close()
	w.open()
}

// settle writes every outcome and waits until it has taken effect.
func (w *world) settle() {
	w.t.Helper()
	if err := w.svc.flush(true); err != nil {
		w.t.Fatal(err)
	}
	w.svc.commit.Lock()
	at := w.st.Bounds().Max
	w.svc.commit.Unlock()
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	if err := w.st.WaitApplied(ctx, at-1); err != nil {
		w.t.Fatal(err)
	}
}

// linger lets the linger time pass, until every acknowledgement can be written: a message that fails meanwhile moves the
// cursor, and what is acknowledged above its new place lingers anew.
func (w *world) linger() {
	w.t.Helper()
	for i, behind := 0, 1; i < 2 || behind > 0; i++ {
		if i == 20 {
			w.t.Fatalf("%d acknowledgements are not written after %d linger times\n%s", behind, i, w.describe())
		}
		behind = 0
		for _, g := range w.svc.everyGroup() {
			g.mu.Lock()
			g.d.Expire(w.clock.Load())
			g.pumpLocked()
			for _, st := range g.streams {
				behind += st.d.Behind()
			}
			g.mu.Unlock()
		}
		w.clock.Add(300)
	}
}

// join connects a machine of a group.
func (w *world) join(group string, bindings ...wire.Binding) *member {
	w.t.Helper()
	m := &member{w: w, group: group}
	var err error
	if m.se, err = w.svc.Open(m, netip.MustParseAddrPort("127.0.0.1:2")); err != nil {
		w.t.Fatal(err)
	}
	if err := m.se.Metadata([]string{group}, false); err != nil {
		w.t.Fatal(err)
	}
	for i := range bindings {
		bindings[i].Group = group
		if err := m.se.Subscribe(&bindings[i]); err != nil {
			w.t.Fatal(err)
		}
	}
	w.mu.Lock()
	w.members = append(w.members, m)
	w.mu.Unlock()
	return m
}

func (m *member) leave() {
	w := m.w
	w.mu.Lock()
	m.cut = true
	for i, o := range w.members {
		if o == m {
			w.members = append(w.members[:i], w.members[i+1:]...)
			break
		}
	}
	w.mu.Unlock()
	m.se.Close()
}

func fanoutOn(topic string) wire.Binding {
	return wire.Binding{Kind: wire.Fanout, Topic: topic, WaterMark: -1, Persistent: true}
}

func directOn(topic, typ string) wire.Binding {
	return wire.Binding{Kind: wire.Direct, Topic: topic, Expr: typ, WaterMark: -1, Persistent: true}
}

// send stores messages of these types and returns their ids.
func (w *world) send(topic string, types ...string) []uint64 {
	w.t.Helper()
	ms, rs := make([]Incoming, len(types)), make([]Sent, len(types))
	ids := make([]uint64, len(types))
	for i, typ := range types {
		w.nextID++
		ids[i] = w.nextID
		ms[i] = Incoming{
			Header: &wire.MessageHeader{
				ID: binary.BigEndian.AppendUint64(binary.BigEndian.AppendUint64(nil, w.nextID), 7), Topic: []byte(topic), Type: []byte(typ),
				Group: []byte("P-test"), Committed: true, BornTime: uint64(w.clock.Load()), Priority: 4,
			},
			Body: fmt.Appendf(nil, "message %d", w.nextID),
		}
	}
	if w.restrict != "" {
		for i := range ms {
			ms[i].Header.TargetGroup, ms[i].Header.Set = []byte(w.restrict), ms[i].Header.Set.With(wire.FieldTargetGroup)
		}
	}
	w.pub.Send(ms, rs)
	for i := range rs {
		if rs[i].Err != nil {
			w.t.Fatalf("send: %v", rs[i].Err)
		}
		w.addr[ids[i]] = rs[i].Address
		w.sent[ids[i]] = topic + "/" + types[i]
	}
	return ids
}

// look loads what a member has been pushed and not looked at, as a transport's writer would, and notes it.
func (w *world) look(m *member) {
	w.mu.Lock()
	var fresh []int
	for i := range m.inbox {
		if m.inbox[i].id == 0 {
			fresh = append(fresh, i)
		}
	}
	w.mu.Unlock()
	var l Loaded
	for _, i := range fresh {
		w.mu.Lock()
		p := m.inbox[i]
		w.mu.Unlock()
		if err := m.se.Load(&p.d, &l); err != nil {
			w.t.Fatalf("load %d: %v", p.d.Message.Address, err)
		}
		id := binary.BigEndian.Uint64(l.Header.ID)
		if want := fmt.Sprintf("message %d", id); string(l.Body) != want || string(l.Header.TargetGroup) != m.group {
			w.t.Fatalf("delivery of %s for %s, want %s for %s", l.Body, l.Header.TargetGroup, want, m.group)
		}
		attempt := l.Header.DeliveryCount
		l.Release()
		w.mu.Lock()
		m.inbox[i].id = id
		k := key{m.group, id}
		h := w.got[k]
		if h == nil {
			h = &history{}
			w.got[k] = h
		}
		h.pushes++
		h.attempts = append(h.attempts, attempt)
		w.mu.Unlock()
	}
}

// answer answers the i-th delivery that waits at a member.
func (w *world) answer(m *member, i int, status wire.Status) {
	w.look(m)
	w.mu.Lock()
	if i >= len(m.inbox) {
		w.mu.Unlock()
		return
	}
	p := m.inbox[i]
	m.inbox = append(m.inbox[:i], m.inbox[i+1:]...)
	cut := m.cut
	w.mu.Unlock()
	if cut {
		return
	}
	m.se.Answers([]Answer{{Handle: p.d.Handle, Status: status, ID: p.id}})
	if status == wire.NoError {
		w.mu.Lock()
		w.got[key{m.group, p.id}].acked = true
		w.taken[place{m.group, p.d.Message.Address}] = true
		w.mu.Unlock()
	}
	m.se.Drained()
}

// ackAll acknowledges everything that waits at every member, and what comes meanwhile.
func (w *world) ackAll() {
	w.mu.Lock()
	ms := append([]*member(nil), w.members...)
	w.mu.Unlock()
	for _, m := range ms {
		for {
			w.mu.Lock()
			n := len(m.inbox)
			w.mu.Unlock()
			if n == 0 {
				break
			}
			w.answer(m, 0, wire.NoError)
		}
	}
}

// advance moves the clock and lets the service see it.
func (w *world) advance(d time.Duration) {
	w.clock.Add(d.Milliseconds())
	poke(w.svc.tickNow)
	poke(w.svc.flushNow)
}

// quiet does everything that is due at the clock's time and waits until the service has nothing more to do: what has not
// come then does not come before the clock moves.
func (w *world) quiet() {
	w.t.Helper()
	for _, g := range w.svc.everyGroup() {
		g.tick(w.clock.Load())
	}
	w.until("the background work to end", func() bool {
		for _, g := range w.svc.everyGroup() {
			g.mu.Lock()
			busy := g.loading
			for _, st := range g.streams {
				busy = busy || st.reading || st.changing
			}
			g.mu.Unlock()
			if busy {
				return false
			}
		}
		return true
	})
}

// until waits for a condition that background work of the service brings about.
func (w *world) until(what string, ok func() bool) {
	w.t.Helper()
	for end := time.Now().Add(20 * time.Second); !ok(); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			w.t.Fatalf("waited in vain for: %s\n%s", what, w.describe())
		}
	}
}

func (w *world) describe() string {
	var b strings.Builder
	fmt.Fprintf(&b, "stats %+v\n", w.svc.Stats())
	for _, g := range w.svc.Groups() {
		fmt.Fprintf(&b, "group %+v\n", g)
	}
	return b.String()
}

func (w *world) waiting(m *member) int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return len(m.inbox)
}

// ids returns the message ids that wait at a member, in the order they came.
func (w *world) ids(m *member) []uint64 {
	w.look(m)
	w.mu.Lock()
	defer w.mu.Unlock()
	var ids []uint64
	for _, p := range m.inbox {
		ids = append(ids, p.id)
	}
	return ids
}

func (w *world) mode(group, topic string) string {
	for _, g := range w.svc.Groups() {
		if g.Name == group {
			for _, t := range g.Topics {
				if t.Topic == topic {
					return t.Mode
				}
			}
		}
	}
	return ""
}

func (w *world) check() {
	w.t.Helper()
	w.mu.Lock()
	defer w.mu.Unlock()
	for i, v := range w.wrong {
		w.t.Errorf("group %s gets the message at %d again (attempt %d) after its acknowledgement was kept", v.group, v.address, v.attempt)
		if i == 0 {
			w.t.Log(w.storyLocked(v.group, v.address))
		}
	}
}

// story is what the store was told about a message of a group, for a failure.
func (w *world) story(group string, address int64) string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.storyLocked(group, address)
}

func (w *world) storyLocked(group string, address int64) string {
	var b strings.Builder
	for _, o := range w.ops {
		if strings.HasPrefix(o, "kill") || strings.Contains(o, " "+group+" ") || strings.Contains(o, "delete") || strings.Contains(o, strconv.FormatInt(address, 10)) {
			b.WriteString(o + "\n")
		}
	}
	return b.String()
}

var opNames = map[state.OpKind]string{
	state.OpDelete: "delete", state.OpUpdate: "update", state.OpRetire: "retire", state.OpBind: "bind",
	state.OpUnbind: "unbind", state.OpAttach: "attach", state.OpDetach: "detach", state.OpCursor: "cursor",
}

// hooked is a store that asks before it does: an error of the hook is the store's. Hooks are set before the service starts.
type hooked struct {
	Store
	operate  func(ops []state.Op) error
	recordAt func(at int64) error
	cursor   func(topic, group string)
}

func (h *hooked) wrap(s Store) Store { h.Store = s; return h }

func (h *hooked) Operate(ops []state.Op) (int64, error) {
	if h.operate != nil {
		if err := h.operate(ops); err != nil {
			return 0, err
		}
	}
	return h.Store.Operate(ops)
}

func (h *hooked) RecordAt(at int64) ([]byte, func(), error) {
	if h.recordAt != nil {
		if err := h.recordAt(at); err != nil {
			return nil, nil, err
		}
	}
	return h.Store.RecordAt(at)
}

func (h *hooked) Cursor(topic, group string) (state.GroupPosition, bool) {
	if h.cursor != nil {
		h.cursor(topic, group)
	}
	return h.Store.Cursor(topic, group)
}

// tap notes what the store applies, for the message of a failure.
type tap struct {
	w *world
	store.Observer
}

func (t *tap) Owed(os []state.Owed) {
	t.w.mu.Lock()
	for _, o := range os {
		t.w.ops = append(t.w.ops, fmt.Sprintf("%d owed %s to %v", o.Address, o.Topic, o.Targets))
	}
	t.w.mu.Unlock()
	t.Observer.Owed(os)
}

func (t *tap) Applied(at int64, ops []state.Op) {
	t.w.mu.Lock()
	for _, o := range ops {
		t.w.ops = append(t.w.ops, fmt.Sprintf("%d %s %s %s %d-%d %v", at, opNames[o.Kind], o.Topic, o.Group, o.First, o.Last, o.Failed))
	}
	t.w.mu.Unlock()
	t.Observer.Applied(at, ops)
}
