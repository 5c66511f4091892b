package broker

// What a subscription selects: by tags, which is decided on the queue entry, or by an SQL92 expression, which the store answers: with bits
// that it has made of new messages as they came, and from their properties otherwise (docs/filters.md).

import (
	"errors"
	"strings"
	"sync"

	"github.com/fusionmq/fusionmq/metaq/membership"
	"github.com/fusionmq/fusionmq/metaq/remoting"
	"github.com/fusionmq/fusionmq/metaq/tagfilter"
	"github.com/fusionmq/fusionmq/store"
	"github.com/fusionmq/fusionmq/store/filter"
	"github.com/fusionmq/fusionmq/store/queue"
)

const sql92 = "SQL92"

// selector is a compiled subscription: one of the two is set. It is comparable, and an equal one selects the same.
type selector struct {
	tags *tagfilter.Filter
	sql  *store.PullFilter
}

// filterOf compiles the expression of a request about a topic.
func (b *Broker) filterOf(topic, kind, expr string) (selector, error) {
	switch kind {
	case "", "TAG":
		if expr == "" || expr == tagfilter.Everything {
			return selector{tags: tagfilter.All()}, nil
		}
		f, err := tagfilter.Parse(expr)
		if err != nil {
			return selector{}, badExpression(expr, err)
		}
		return selector{tags: f}, nil
	case sql92:
		if b.cfg.NoPropertyFilter {
			break
		}
		f, err := b.sqls.get(b.store, topic, expr)
		if err != nil {
			return selector{}, badExpression(expr, err)
		}
		return selector{sql: f}, nil
	}
	return selector{}, noFilter(kind)
}

// checkExpression says why an expression would not do, without a topic to use it on.
func (b *Broker) checkExpression(kind, expr string) error {
	if kind != sql92 || b.cfg.NoPropertyFilter {
		_, err := b.filterOf("", kind, expr)
		return err
	}
	if _, err := filter.ParseSQL92(expr); err != nil {
		return badExpression(expr, err)
	}
	return nil
}

func badExpression(expr string, why error) error {
	return refuse(remoting.RespSubscriptionParseFailed, "parse the consumer's subscription failed: %q: %s", clip(expr), why)
}

// noFilter is the answer to an expression of a kind that is not served. The text is what clients look for.
func noFilter(kind string) error {
	return refuse(remoting.RespSystemError, "The broker does not support consumer to filter message by %s", clip(kind))
}

// compiled is what was made of the SQL92 expression of a subscription.
type compiled struct {
	filter *store.PullFilter
	err    error
}

// selectorOf gives the filter of a subscription that a heartbeat has registered. An SQL92 expression is compiled when it is pulled by for the
// first time, so that heartbeats cost what their size says.
func (b *Broker) selectorOf(topic string, s *membership.Sub) (selector, error) {
	switch {
	case s.Err != nil:
		return selector{}, badExpression(s.SubString, s.Err)
	case s.Filter != nil:
		return selector{tags: s.Filter}, nil
	case s.ExpressionType != sql92 || b.cfg.NoPropertyFilter:
		return selector{}, noFilter(s.ExpressionType)
	}
	c, _ := s.Compiled.Load().(*compiled)
	if c == nil {
		c = &compiled{}
		c.filter, c.err = b.sqls.get(b.store, topic, s.SubString)
		s.Compiled.Store(c) // of two at once either will do: equal filters are one
	}
	if c.err != nil {
		return selector{}, refuse(remoting.RespFilterDataNotExist, "The broker's consumer filter data is not exist!Your expression may be wrong! %s", c.err)
	}
	return selector{sql: c.filter}, nil
}

// expressions are the SQL92 expressions of pulls that carry their own, compiled: such a client sends it with every pull.
type expressions struct {
	mu       sync.Mutex
	now, old map[topicExpr]*store.PullFilter
	bytes    int // of the texts in now
}

type topicExpr struct{ topic, expr string }

// maxExpressionBytes bounds the texts of one generation of expressions, of which there are two.
const maxExpressionBytes = 1 << 20

// get gives the filter of an expression on a topic. It keeps no memory of the caller's strings.
func (x *expressions) get(s *store.Store, topic, expr string) (*store.PullFilter, error) {
	key := topicExpr{topic, expr}
	x.mu.Lock()
	f := x.now[key]
	if f == nil {
		f = x.old[key]
	}
	x.mu.Unlock()
	if f != nil && !f.Stale() {
		return f, nil
	}
	key = topicExpr{strings.Clone(topic), strings.Clone(expr)}
	e, err := filter.ParseSQL92(key.expr)
	if err != nil {
		return nil, err
	}
	f = s.PullFilter(key.topic, e)
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.bytes > maxExpressionBytes || x.now == nil {
		x.old, x.now, x.bytes = x.now, map[topicExpr]*store.PullFilter{}, 0
	}
	x.now[key] = f
	x.bytes += len(topic) + len(expr) + 128
	return f, nil
}

// selectAhead is how many entries one pull looks at when bits tell that a filter rejects them, for each that it may read.
const selectAhead = 16

// takeSelected is take for an SQL92 filter.
func (b *Broker) takeSelected(res *pullResult, q *queue.Queue, p *pull, offset int64) error {
	var got *batch
	var entries [32]store.TopicEntry
	looked, read := 0, 0
	most := max(b.cfg.MaxScanEntries, p.max)
	var err error
scan:
	for looked < most*selectAhead && read < most {
		var r store.Selected
		have := 0
		if got != nil {
			have = len(got.parts)
		}
		r, err = b.store.Select(q, offset, p.filter.sql, entries[:min(len(entries), p.max-have)], most-read)
		looked, read = looked+r.Looked, read+r.Read
		for i := range entries[:r.Entries] {
			e := &entries[i]
			offset = e.QueueOffset
			if got != nil && got.bytes+int(e.Size) > b.cfg.MaxPullBytes {
				break scan
			}
			rec, release, gone := b.store.Record(e.Entry)
			if errors.Is(gone, store.ErrUnavailable) || errors.Is(gone, store.ErrClosed) { // not lost: the client asks again
				err = gone
				break scan
			}
			offset++
			if gone != nil { // as in take
				b.stats.stepped.Add(1)
				continue
			}
			if got == nil {
				got = newBatch()
			}
			got.add(rec, release)
			if len(got.parts) == p.max {
				break scan
			}
		}
		offset = r.Next
		if err != nil || r.Looked == 0 {
			break
		}
	}
	b.stats.selected(looked, read)
	if err != nil && got == nil {
		return err
	}
	res.finish(offset, got)
	return nil
}
