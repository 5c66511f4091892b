package broker

import (
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
// Whoever takes a pull out of the table, that goroutine or the close of the connection, ends it. mu is never held
// over a call into the store, which takes locks of its own and may call back at once.
type holds struct {
	b    *Broker
	kick chan struct{} // room for one: something is ready, or the earliest deadline has changed
	quit chan struct{}
	done sync.WaitGroup

	mu struct {
		sync.Mutex
		table  *longpoll.Table[*held]
		ready  []*longpoll.Hold[*held]
		armed  int64 // the deadline that the timer is set to, in milliseconds; 0 for none
		closed bool
	}
}

// held is a pull that waits.
type held struct {
	pull
	peer    *peer
	queue   *queue.Queue
	checked int64 // entries below it were looked at and rejected; only the goroutine of holds uses it

	watch struct { // guarded by holds.mu
		stop  func() bool
		ended bool // the pull is over: a watch that is set now has to be stopped
	}
}

type heldPull = longpoll.Hold[*held]

func newHolds(b *Broker) *holds {
	h := &holds{b: b, kick: make(chan struct{}, 1), quit: make(chan struct{})}
	h.mu.table = longpoll.New[*held](b.cfg.MaxHeld)
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
	for _, p := range left {
		h.end(p)
		a.last(p)
	}
	a.flush()
}

// len is how many pulls are held.
func (h *holds) len() int {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.mu.table.Len()
}

// add holds a pull for at most d. It reports false when there is no room.
func (h *holds) add(from *peer, p pull, d time.Duration) bool {
	q := h.b.store.Queue(p.topic.Name, p.queue, true)
	if q == nil {
		return false // the topic went in this moment
	}
	hp := &held{pull: p, peer: from, queue: q, checked: p.offset}
	// At least a millisecond: the deadline is in whole ones, and none must be earlier than asked for.
	deadline := time.Now().Add(d + time.Millisecond - 1).UnixMilli()
	h.mu.Lock()
	if h.mu.closed {
		h.mu.Unlock()
		return false
	}
	x, ok := h.mu.table.Add(from.id, deadline, hp)
	earlier := ok && (h.mu.armed == 0 || deadline < h.mu.armed)
	h.mu.Unlock()
	if !ok {
		return false
	}
	if earlier {
		h.wake()
	}
	h.watch(x)
	return true
}

// watch arms the wake-up for the next message behind what was looked at.
func (h *holds) watch(x *heldPull) {
	hp := x.Value
	stop := hp.queue.Watch(hp.checked, func() {
		h.mu.Lock()
		if x.Held() {
			h.mu.ready = append(h.mu.ready, x)
		}
		first := len(h.mu.ready) == 1
		h.mu.Unlock()
		if first {
			h.wake()
		}
	})
	h.mu.Lock()
	ended := hp.watch.ended
	if !ended {
		hp.watch.stop = stop
	}
	h.mu.Unlock()
	if ended {
		stop()
	}
}

// end stops the watch of a pull that was taken out of the table.
func (h *holds) end(x *heldPull) {
	hp := x.Value
	h.mu.Lock()
	hp.watch.ended = true
	stop := hp.watch.stop
	hp.watch.stop = nil
	h.mu.Unlock()
	if stop != nil {
		stop()
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
	for {
		h.mu.Lock()
		ready, h.mu.ready = h.mu.ready, ready[:0]
		over = h.mu.table.Expire(time.Now().UnixMilli(), over[:0])
		next, ok := h.mu.table.Next()
		h.mu.armed = next
		h.mu.Unlock()
		if ok {
			timer.Reset(time.Until(time.UnixMilli(next)))
		} else {
			timer.Stop()
		}
		for i, x := range ready {
			a.again(x)
			ready[i] = nil
		}
		for i, x := range over {
			h.end(x)
			a.last(x)
			over[i] = nil
		}
		a.flush()
		select {
		case <-h.kick:
		case <-timer.C:
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

// again looks at the queue of a woken pull and answers it when something matches.
func (a *answers) again(x *heldPull) {
	hp := x.Value
	b := a.h.b
	for a.h.holding(x) {
		res, err := b.look(&hp.pull, hp.checked, a.entries[:])
		if err == nil && res.status == noMatchedMessage {
			hp.checked = res.next
			continue // there may be more behind it
		}
		if err == nil && res.code == remoting.RespPullNotFound {
			a.h.watch(x)
			return
		}
		a.h.mu.Lock()
		won := a.h.mu.table.Remove(x)
		a.h.mu.Unlock()
		if !won {
			if res.batch != nil {
				res.batch.release()
			}
			return
		}
		a.h.end(x)
		a.write(hp, &res, err)
		return
	}
}

// last answers a pull whose time is over: with what the queue holds now, usually nothing, and how far it was looked at.
func (a *answers) last(x *heldPull) {
	hp := x.Value
	res, err := a.h.b.look(&hp.pull, hp.checked, a.entries[:])
	if err == nil && hp.checked != hp.offset && res.code == remoting.RespPullNotFound {
		// Rejected messages came while it waited: the client goes on behind them.
		res.status, res.code, res.next = noMatchedMessage, remoting.RespPullRetryImmediately, hp.checked
	}
	a.write(hp, &res, err)
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
		o.Response(hp.to, code, remark)
		_ = o.End(nil) // a frame of this size always fits
		return
	}
	e := o.Response(hp.to, res.code, pullStatuses[res.status].name)
	a.h.b.pullFields(e, &hp.pull, res)
	if res.batch == nil {
		_ = o.End(nil)
		return
	}
	a.h.b.stats.got(len(res.batch.parts), res.batch.bytes)
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
