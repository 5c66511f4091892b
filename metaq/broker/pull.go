package broker

// PULL_MESSAGE (11) and LITE_PULL_MESSAGE (361).
//
// Checks and the table from queue state to code are RocketMQ's (spec/remoting.md 3.4). A pull is answered from the queue
// index and the mapped log: bodies are not copied, and a filter is decided on the entry alone.

import (
	"errors"
	"sync"
	"time"

	"github.com/fusionmq/fusionmq/metaq/remoting"
	"github.com/fusionmq/fusionmq/metaq/server"
	"github.com/fusionmq/fusionmq/store"
	"github.com/fusionmq/fusionmq/store/meta"
	"github.com/fusionmq/fusionmq/store/queue"
)

// pullStatus is what a look at the queue found. Its text is the remark that RocketMQ sends.
type pullStatus uint8

const (
	found pullStatus = iota
	noMatchedMessage
	noMatchedQueue
	noMessageInQueue
	offsetOverflowOne
	offsetOverflowBadly
	offsetTooSmall
	offsetReset
)

var pullStatuses = [...]struct {
	name string
	code int32
}{
	found:               {"FOUND", remoting.RespSuccess},
	noMatchedMessage:    {"NO_MATCHED_MESSAGE", remoting.RespPullRetryImmediately},
	noMatchedQueue:      {"NO_MATCHED_LOGIC_QUEUE", remoting.RespPullNotFound},
	noMessageInQueue:    {"NO_MESSAGE_IN_QUEUE", remoting.RespPullNotFound},
	offsetOverflowOne:   {"OFFSET_OVERFLOW_ONE", remoting.RespPullNotFound},
	offsetOverflowBadly: {"OFFSET_OVERFLOW_BADLY", remoting.RespPullOffsetMoved},
	offsetTooSmall:      {"OFFSET_TOO_SMALL", remoting.RespPullOffsetMoved},
	offsetReset:         {"OFFSET_RESET", remoting.RespPullOffsetMoved},
}

// pull is a checked pull request. It does not alias the frame, so it can be held.
type pull struct {
	to     remoting.ReplyTo
	topic  *meta.Topic
	group  *meta.Group
	queue  int32
	offset int64
	max    int
	filter selector
	// registered: filter is of the group's heartbeats, at least of version, and not of the request.
	registered bool
	version    int64
}

// pullResult is what a pull is answered with.
type pullResult struct {
	status         pullStatus
	code           int32
	next, min, max int64
	batch          *batch // not nil with found; to be released
}

// batch is the messages of one answer. Its memory is used again once release has run.
type batch struct {
	parts    [][]byte
	releases []func()
	bytes    int
	release  func() // b.done, made once
}

var batches sync.Pool // of *batch

func newBatch() *batch {
	if b, ok := batches.Get().(*batch); ok {
		return b
	}
	b := new(batch)
	b.release = b.done
	return b
}

func (b *batch) add(rec []byte, release func()) {
	b.parts = append(b.parts, rec)
	b.releases = append(b.releases, release)
	b.bytes += len(rec)
}

func (b *batch) done() {
	for i, r := range b.releases {
		r()
		b.releases[i] = nil
	}
	clear(b.parts)
	b.parts, b.releases, b.bytes = b.parts[:0], b.releases[:0], 0
	batches.Put(b)
}

// pull answers a pull, or holds it.
func (w *work) pull(r *server.Request) {
	h := &w.pullHeader
	p, err := w.b.checkPull(h, &r.Header)
	if err != nil {
		w.refusePull(r, err)
		return
	}
	if h.SysFlag&remoting.PullCommitOffset != 0 && !w.b.resets.has(p.resetKey()) {
		w.b.store.Offsets().Commit(p.group.Name, p.topic.Name, p.queue, h.CommitOffset)
	}
	res, err := w.b.look(&p, p.offset, w.entries[:])
	if err != nil {
		w.refusePull(r, err)
		return
	}
	if res.code == remoting.RespPullNotFound && h.SysFlag&remoting.PullSuspend != 0 && h.SuspendTimeoutMillis > 0 {
		hold := w.b.cfg.MaxHold
		if h.SuspendTimeoutMillis < hold.Milliseconds() {
			hold = time.Duration(h.SuspendTimeoutMillis) * time.Millisecond
		}
		p.to = r.ReplyTo()
		err := w.b.holds.add(w.peer, p, hold)
		if err == nil {
			w.burst.Hold(r)
			w.b.stats.miss()
			return
		}
		if !errors.Is(err, errNoHolds) { // an answer that nothing is there would make the client pull again at once
			w.refusePull(r, err)
			return
		}
	}
	e := w.burst.Reply(r, res.code, pullStatuses[res.status].name)
	w.b.pullFields(e, &p, &res)
	if res.batch == nil {
		w.burst.End(nil)
		w.b.stats.miss()
		return
	}
	w.b.count(&p, res.batch)
	w.burst.EndParts(res.batch.parts, res.batch.release)
}

// count notes messages that are handed out.
func (b *Broker) count(p *pull, got *batch) {
	b.stats.got(len(got.parts), got.bytes)
	b.traffic.out(p.group.Name, p.topic.Name).add(len(got.parts), got.bytes)
}

func (b *Broker) pullFields(e *remoting.Encoder, p *pull, res *pullResult) {
	r := remoting.PullResult{NextBeginOffset: res.next, MinOffset: res.min, MaxOffset: res.max}
	r.Write(e)
	e.Int("topicSysFlag", int64(p.topic.SysFlag))
	e.Int("groupSysFlag", int64(p.group.SysFlag))
}

// forbidden is a refusal with the field that says what forbids.
type forbidden struct {
	refusal
	kind int64 // 1 broker, 2 group, 3 topic, 4 broadcast, 5 topic for this group
}

func (f *forbidden) Unwrap() error { return &f.refusal }

func forbid(kind int64, err error) error {
	code, remark := codeOf(err)
	return &forbidden{refusal{code, remark}, kind}
}

func (w *work) refusePull(r *server.Request, err error) {
	code, remark := codeOf(err)
	forbiddenType(w.burst.Reply(r, code, remark), err)
	w.burst.End(nil)
}

// forbiddenType adds the field of a refused pull's answer that says what forbids it, if something does.
func forbiddenType(e *remoting.Encoder, err error) {
	var f *forbidden
	if errors.As(err, &f) {
		e.Int("forbiddenType", f.kind)
	}
}

// checkPull reads a pull request and checks it in RocketMQ's order.
func (b *Broker) checkPull(h *remoting.PullHeader, raw *remoting.Header) (p pull, err error) {
	if err := h.Read(raw); err != nil {
		return p, err
	}
	p.queue, p.offset, p.max = h.QueueID, h.QueueOffset, max(1, min(int(h.MaxMsgNums), b.cfg.MaxPullMessages))
	if err := b.admit(&p, h.ConsumerGroup, h.Topic); err != nil {
		return p, err
	}
	if h.SysFlag&remoting.PullSubscription != 0 {
		p.filter, err = b.filterOf(p.topic.Name, h.ExpressionType, h.Subscription)
	} else {
		p.registered, p.version = true, h.SubVersion
		p.filter, err = b.subscription(p.group, p.topic.Name, h.SubVersion)
	}
	return p, err
}

// admit looks up the group and the topic of a pull as they are now, and says what forbids it.
func (b *Broker) admit(p *pull, group, topic string) (err error) {
	if p.group, err = b.group(group); err != nil {
		return err
	}
	if !p.group.ConsumeEnable {
		return forbid(2, refuse(remoting.RespNoPermission, "subscription group no permission, %s", p.group.Name))
	}
	if p.topic = b.store.Topics().Get(topic); p.topic == nil {
		return noTopic(topic)
	}
	if p.topic.Perm&meta.PermRead == 0 {
		return forbid(3, refuse(remoting.RespNoPermission, "the topic[%s] pulling message is forbidden", p.topic.Name))
	}
	if p.queue < 0 || p.queue >= p.topic.ReadQueues {
		return refuse(remoting.RespInvalidParameter, "queueId[%d] is illegal, topic:[%s] topicConfig.readQueueNums:[%d]", p.queue, p.topic.Name, p.topic.ReadQueues)
	}
	return nil
}

// subscription finds the filter that a heartbeat of the group has registered.
func (b *Broker) subscription(group *meta.Group, topic string, version int64) (selector, error) {
	g := b.members.Group(group.Name)
	if g == nil {
		return selector{}, refuse(remoting.RespSubscriptionNotExist, "the consumer's group info not exist%s", faq)
	}
	if g.Model == remoting.Broadcasting && !group.ConsumeBroadcastEnable {
		return selector{}, forbid(4, refuse(remoting.RespNoPermission, "the consumer group[%s] can not consume by broadcast way", group.Name))
	}
	s := g.Sub(topic)
	switch {
	case s == nil:
		return selector{}, refuse(remoting.RespSubscriptionNotExist, "the consumer's subscription not exist%s", faq)
	case int64(s.SubVersion) < version:
		return selector{}, refuse(remoting.RespSubscriptionNotLatest, "the consumer's subscription not latest: the broker has version %d, the pull says %d", s.SubVersion, version)
	}
	return b.selectorOf(topic, s)
}

// look reads the queue of p from offset on. With found, the caller owes the batch its release.
func (b *Broker) look(p *pull, offset int64, entries []queue.Entry) (res pullResult, err error) {
	if p.filter.sql != nil {
		p.filter.sql.Use()
	}
	q := b.store.Queue(p.topic.Name, p.queue, false)
	if to, ok := b.resets.take(p.resetKey()); ok && to != p.offset {
		if q != nil {
			res.min, res.max = q.Range()
		}
		res.status, res.code, res.next = offsetReset, remoting.RespPullOffsetMoved, to
		return res, nil
	}
	if q == nil {
		res.status = noMatchedQueue
	} else {
		res.min, res.max = q.Range()
		switch {
		case res.max == 0:
			res.status = noMessageInQueue
		case offset < res.min:
			res.status, res.next = offsetTooSmall, res.min
		case offset == res.max:
			res.status, res.next = offsetOverflowOne, offset
		case offset > res.max:
			res.status, res.next = offsetOverflowBadly, res.max
		default:
			if err := b.take(&res, q, p, offset, entries); err != nil {
				return res, err
			}
		}
	}
	res.code = pullStatuses[res.status].code
	if res.status <= noMessageInQueue && res.status >= noMatchedQueue && offset != 0 {
		res.code = remoting.RespPullOffsetMoved
	}
	return res, nil
}

// take fills res with the messages from offset on that the filter passes, up to the limits of one answer.
func (b *Broker) take(res *pullResult, q *queue.Queue, p *pull, offset int64, entries []queue.Entry) error {
	if p.filter.sql != nil {
		return b.takeSelected(res, q, p, offset)
	}
	var got *batch
	scanned := 0
	limit := max(b.cfg.MaxScanEntries, p.max)
scan:
	for scanned < limit {
		n, err := q.Read(offset, entries[:min(len(entries), limit-scanned)])
		if err != nil {
			if got == nil {
				return err
			}
			break
		}
		if n == 0 {
			break
		}
		for i := range entries[:n] {
			e := &entries[i]
			scanned++
			if !p.filter.tags.Match(e.TagsCode) {
				offset++
				continue
			}
			if got != nil && got.bytes+int(e.Size) > b.cfg.MaxPullBytes {
				break scan
			}
			rec, release, err := b.store.Record(*e)
			if errors.Is(err, store.ErrUnavailable) || errors.Is(err, store.ErrClosed) { // not lost: the client asks again
				if got == nil {
					return err
				}
				break scan
			}
			if err != nil { // the log behind the entry was deleted: stepped over, as RocketMQ does. The store has named it in an expiry record
				b.stats.stepped.Add(1)
				offset++
				continue
			}
			if got == nil {
				got = newBatch()
			}
			got.add(rec, release)
			offset++
			if len(got.parts) == p.max {
				break scan
			}
		}
	}
	res.finish(offset, got)
	return nil
}

// finish says what was taken, nothing when got is nil, and that the client goes on at offset.
func (res *pullResult) finish(offset int64, got *batch) {
	res.status, res.next, res.batch = found, offset, got
	if got == nil {
		res.status = noMatchedMessage
	}
	res.max = max(res.max, offset)
}
