package broker

import (
	"errors"
	"sync"
	"time"

	"github.com/fusionmq/fusionmq/metaq/longpoll"
	"github.com/fusionmq/fusionmq/metaq/remoting"
	"github.com/fusionmq/fusionmq/metaq/server"
	"github.com/fusionmq/fusionmq/store/queue"
)

// holds are the pulls that wait for a message.
//
// A held pull watches its queue. The goroutine that makes a message visible, an appender, only puts the pull on a list and
// goes on; one goroutine of the broker looks at the queue again and answers, all pulls of one connection in one write. A
// message that the filter rejects leaves the pull held, and what was rejected is not looked at again. One timer serves the
// deadlines of all.
//
// Whoever takes a pull out of the table, that goroutine or the close of its connection, ends it. mu is never held
// over a call into the store, which takes locks of its own and may call back at once.
type holds struct {
	b    *Broker
	kick chan struct{} // room for one: something is ready, or the earliest deadline has changed
	quit chan struct{}
	done sync.WaitGroup
	pool sync.Pool // of *heldPull

	mu struct {
		sync.Mutex
		table *longpoll.Table[held]
		ready []*heldPull
		moved []resetKey // groups and topics whose pulls are to be answered, without a queue
		// armed is when the timer goes off, in milliseconds since 1970; 0 when it is not set. It is never later than the earliest
		// deadline but may be earlier: an answered pull leaves the timer alone, and a new one then needs none.
		armed  int64
		closed bool
	}
}

// held is a pull that waits. Its memory is used again, so that a consumer that keeps up costs no garbage.
type held struct {
	pull
	peer    *peer
	queue   *queue.Queue
	checked int64 // entries below it were looked at and rejected; only the goroutine of holds uses it

	waiter queue.Waiter
	woken  func() // what the waiter calls; made once for the memory

	// Guarded by holds.mu. At most one watch is out at a time. The memory is used again only when it is idle and nobody is
	// arming: then no other goroutine can come upon it.
	arming int  // goroutines that are setting the watch; the last of them stops it if the pull is over by then
	idle   bool // the watch has called, or there was none yet
}

type heldPull = longpoll.Hold[held]

func newHolds(b *Broker) *holds {
	h := &holds{b: b, kick: make(chan struct{}, 1), quit: make(chan struct{})}
	h.mu.table = longpoll.New[held](b.cfg.MaxHeld)
	return h
}

func (h *holds) start() {
	h.done.Add(1)
	go h.run()
}

// stop ends the goroutine and answers what is still held.
func (h *holds) stop() {
	h.mu.Lock()
	if h.mu.closed {
		h.mu.Unlock()
		return
	}
	h.mu.closed = true
	h.mu.Unlock()
	close(h.quit)
	h.done.Wait()
	h.mu.Lock()
	left := h.mu.table.Clear(nil)
	h.mu.Unlock()
	a := answers{h: h}
	for _, x := range left {
		a.last(x)
	}
	a.flush()
}

// len is how many pulls are held.
func (h *holds) len() int {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.mu.table.Len()
}

// errNoHolds: a pull is not held because nothing is any more.
var errNoHolds = errors.New("nothing is held any more: the broker stops, or the topic has gone")

// add holds a pull for at most d. It is refused when its connection holds its share of what may be held.
func (h *holds) add(from *peer, p pull, d time.Duration) error {
	q := h.b.store.Queue(p.topic.Name, p.queue, true)
	if q == nil {
		return errNoHolds
	}
	x := h.memory()
	v := &x.Value
	v.pull, v.peer, v.queue, v.checked = p, from, q, p.offset
	// Rounded up: deadlines are whole milliseconds, and none must be earlier than asked for.
	deadline := time.Now().Add(d + time.Millisecond - 1).UnixMilli()
	h.mu.Lock()
	closed := h.mu.closed
	if closed || !h.mu.table.Add(x, from.id, deadline) {
		of, all := h.mu.table.Of(from.id), h.mu.table.Len()
		h.mu.Unlock()
		h.free(x)
		if closed {
			return errNoHolds
		}
		limit := h.b.cfg.MaxHeld
		return refuse(remoting.RespSystemBusy, "%d pulls of this connection are held, as many as are free: %d of %d; pull again later", of, limit-all, limit)
	}
	v.arming, v.idle = v.arming+1, false
	earlier := h.mu.armed == 0 || deadline < h.mu.armed
	h.mu.Unlock()
	if earlier {
		h.wake()
	}
	h.watch(x)
	return nil
}

// rewatch waits for the next message behind what was looked at. Only the goroutine of holds calls it.
func (h *holds) rewatch(x *heldPull) {
	h.mu.Lock()
	held := x.Held()
	if held {
		// The goroutine that set the watch before may not be back yet from a call at once.
		x.Value.arming, x.Value.idle = x.Value.arming+1, false
	}
	h.mu.Unlock()
	if held {
		h.watch(x)
	}
}

// watch sets the watch of a pull that is marked as arming.
func (h *holds) watch(x *heldPull) {
	v := &x.Value
	v.queue.Wait(&v.waiter, v.checked, v.woken) // may call at once
	h.mu.Lock()
	v.arming--
	over := v.arming == 0 && !x.Held()
	h.mu.Unlock()
	if over {
		v.waiter.Stop()
	}
}

// end stops the watch of a pull that was taken out of the table, unless whoever is setting it will.
func (h *holds) end(x *heldPull) {
	h.mu.Lock()
	arming := x.Value.arming > 0
	h.mu.Unlock()
	if !arming {
		x.Value.waiter.Stop()
	}
}

// memory gives a held pull that is not held.
func (h *holds) memory() *heldPull {
	if x, ok := h.pool.Get().(*heldPull); ok {
		return x
	}
	x := new(heldPull)
	x.Value.idle = true
	x.Value.woken = func() {
		h.mu.Lock()
		x.Value.idle = true
		if x.Held() {
			h.mu.ready = append(h.mu.ready, x)
		}
		first := len(h.mu.ready) == 1
		h.mu.Unlock()
		if first {
			h.wake()
		}
	}
	return x
}

// free gives back the memory of a pull that is over.
func (h *holds) free(x *heldPull) {
	v := &x.Value
	h.mu.Lock()
	again := v.idle && v.arming == 0
	h.mu.Unlock()
	if again {
		v.pull, v.peer, v.queue = pull{}, nil, nil
		h.pool.Put(x)
	}
}

// drop forgets the pulls of a connection that is gone.
func (h *holds) drop(conn uint64) {
	h.mu.Lock()
	gone := h.mu.table.Drop(conn, nil)
	h.mu.Unlock()
	for _, x := range gone {
		h.end(x)
	}
}

// holding reports whether nobody has ended the pull.
func (h *holds) holding(x *heldPull) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return x.Held()
}

func (h *holds) wake() {
	select {
	case h.kick <- struct{}{}:
	default:
	}
}

func (h *holds) run() {
	defer h.done.Done()
	timer := time.NewTimer(time.Hour)
	defer timer.Stop()
	var ready, over []*heldPull
	a := answers{h: h}
	fired := false
	for {
		h.mu.Lock()
		ready, h.mu.ready = h.mu.ready, ready[:0]
		if fired {
			h.mu.armed = 0
		}
		over = h.mu.table.Expire(time.Now().UnixMilli(), over[:0])
		for _, m := range h.mu.moved {
			over = h.mu.table.Take(func(x *heldPull) bool { return x.Value.group.Name == m.group && x.Value.topic.Name == m.topic }, over)
		}
		clear(h.mu.moved)
		h.mu.moved = h.mu.moved[:0]
		next, any := h.mu.table.Next()
		set := any && (h.mu.armed == 0 || next < h.mu.armed)
		if set {
			h.mu.armed = next
		}
		h.mu.Unlock()
		if set {
			timer.Reset(time.Until(time.UnixMilli(next)))
		}
		for i, x := range ready {
			a.again(x)
			ready[i] = nil
		}
		for i, x := range over {
			a.last(x)
			over[i] = nil
		}
		a.flush()
		select {
		case <-h.kick:
			fired = false
		case <-timer.C:
			fired = true
		case <-h.quit:
			return
		}
	}
}

// answers gathers the answers of one pass by connection.
type answers struct {
	h       *holds
	out     map[*server.Conn]*server.Output
	entries [64]queue.Entry
}

// lookAgain looks at the queue of a held pull, unless its group or topic were changed meanwhile so that it may not any more.
// When the group's subscription was changed, what the old one rejected is looked at once more: the pull may be the first of
// a member whose heartbeat was still on its way, and its messages would be stepped over.
func (h *holds) lookAgain(v *held, entries []queue.Entry) (pullResult, error) {
	group, topic := v.group, v.topic
	if err := h.b.admit(&v.pull, group.Name, topic.Name); err != nil {
		v.group, v.topic = group, topic // never nil
		return pullResult{}, err
	}
	if v.registered {
		f, err := h.b.subscription(v.group, v.topic.Name, v.version)
		if err != nil {
			return pullResult{}, err
		}
		if f != v.filter {
			v.filter, v.checked = f, v.offset
		}
	}
	return h.b.look(&v.pull, v.checked, entries)
}

// again looks at the queue of a woken pull and answers it when something matches.
func (a *answers) again(x *heldPull) {
	v := &x.Value
	h := a.h
	for h.holding(x) {
		res, err := h.lookAgain(v, a.entries[:])
		if err == nil && res.status == noMatchedMessage {
			v.checked = res.next
			continue // there may be more behind it
		}
		if err == nil && res.code == remoting.RespPullNotFound {
			h.rewatch(x)
			return
		}
		h.mu.Lock()
		won := h.mu.table.Remove(x)
		h.mu.Unlock()
		if !won { // its connection closed
			if res.batch != nil {
				res.batch.release()
			}
			if res.status == offsetReset { // nobody was told
				h.b.resets.put(v.resetKey(), res.next)
			}
			return
		}
		a.write(v, &res, err)
		h.free(x)
		return
	}
}

// last answers a pull whose time is over: with what the queue holds now, usually nothing, and how far it was looked at.
func (a *answers) last(x *heldPull) {
	v := &x.Value
	a.h.end(x)
	res, err := a.h.lookAgain(v, a.entries[:])
	if err == nil && v.checked != v.offset && res.code == remoting.RespPullNotFound {
		// Rejected messages came while it waited: the client goes on behind them.
		res.status, res.code, res.next = noMatchedMessage, remoting.RespPullRetryImmediately, v.checked
	}
	a.write(v, &res, err)
}

func (a *answers) write(hp *held, res *pullResult, err error) {
	conn := hp.peer.conn
	o := a.out[conn]
	if o == nil {
		if a.out == nil {
			a.out = map[*server.Conn]*server.Output{}
		}
		o = server.NewOutput()
		a.out[conn] = o
	}
	if err != nil {
		code, remark := codeOf(err)
		forbiddenType(o.Response(hp.to, code, remark), err)
		_ = o.End(nil) // a frame of this size always fits
		return
	}
	e := o.Response(hp.to, res.code, pullStatuses[res.status].name)
	a.h.b.pullFields(e, &hp.pull, res)
	if res.batch == nil {
		_ = o.End(nil)
		return
	}
	a.h.b.count(&hp.pull, res.batch)
	if err := o.EndParts(res.batch.parts, res.batch.release); err != nil {
		o.Response(hp.to, remoting.RespSystemError, "the answer does not fit: "+err.Error())
		_ = o.End(nil)
	}
}

func (a *answers) flush() {
	for conn, o := range a.out {
		_ = conn.Send(o) // a connection that is gone wants no answer
		delete(a.out, conn)
	}
}
