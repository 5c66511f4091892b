package store_test

import (
	"math"
	"sync"
	"testing"

	"github.com/fusionmq/fusionmq/store"
	"github.com/fusionmq/fusionmq/store/meta"
	"github.com/fusionmq/fusionmq/store/state"
)

// lives is an observer that acknowledges what it is told is owed, as the push front end does: what has come until then, as one range, in one record.
type lives struct {
	mu    sync.Mutex
	news  *sync.Cond // of mu: something came, or something is done
	first int64      // of what was told and is not acknowledged
	told  int64      // last of it; 0 when there is nothing
	done  int64      // everything up to here has been acknowledged, durably
	err   error
}

func (l *lives) Owed(os []state.Owed) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.told == 0 {
		l.first = os[0].Address
	}
	l.told = os[len(os)-1].Address
	l.news.Broadcast()
}

func (l *lives) Applied(int64, []state.Op) {}

// acknowledge works until done is math.MaxInt64.
func (l *lives) acknowledge(s *store.Store) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for {
		for l.told == 0 && l.done != math.MaxInt64 {
			l.news.Wait()
		}
		if l.done == math.MaxInt64 {
			return
		}
		op := state.Op{Kind: state.OpDelete, Topic: "Bench", First: l.first, Last: l.told}
		l.told = 0
		l.mu.Unlock()
		err := s.OperateSync([]state.Op{op})
		l.mu.Lock()
		if l.done = op.Last; err != nil {
			l.err, l.done = err, math.MaxInt64
		}
		l.news.Broadcast()
	}
}

// wait returns when the message at an address is acknowledged.
func (l *lives) wait(address int64) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	for l.done < address {
		l.news.Wait()
	}
	return l.err
}

// BenchmarkBudgetLife is the whole life of a message of 1 KiB of a sync topic that a push group is owed. Each of 256 writers appends one, which is durable
// and owed then, and acknowledgements join the next batch of operations, as those of the push front end do, where nobody waits for one: a round ends when
// all of its messages are acknowledged, durably. With ack=awaited a writer sends its next message only when that is so for the last, as a client of a
// database has to. The other side of the budget is integration/bench: a row inserted and deleted in a database.
func BenchmarkBudgetLife(b *testing.B) {
	b.Run("ack=joined", func(b *testing.B) { benchmarkLife(b, false) })
	b.Run("ack=awaited", func(b *testing.B) { benchmarkLife(b, true) })
}

func benchmarkLife(b *testing.B, awaited bool) {
	const writers = 256
	l := &lives{}
	l.news = sync.NewCond(&l.mu)
	s, err := store.Open(store.Options{Dir: b.TempDir(), Exchange: newFanout(), Observer: l})
	if err != nil {
		b.Fatal(err)
	}
	addTopic(b, s, "Bench", meta.Sync)
	if _, err := s.Operate(bindOps("Bench", "g")); err != nil {
		b.Fatal(err)
	}
	var wg sync.WaitGroup
	wg.Go(func() { l.acknowledge(s) })
	inRounds(b, func(n int) {
		together(writers, func() {
			ms, rs := benchMessages(1), make([]store.Result, 1)
			each := (n + writers - 1) / writers
			for i := range each {
				s.Append(ms, rs)
				err := rs[0].Err
				if err == nil && (awaited || i == each-1) {
					err = l.wait(rs[0].Address)
				}
				if err != nil {
					b.Error(err)
					return
				}
			}
		})
	})
	b.ReportMetric(float64(b.N)/float64(s.Stats().Log.Syncs), "records/sync")
	l.mu.Lock()
	l.done = math.MaxInt64
	l.mu.Unlock()
	l.news.Broadcast()
	wg.Wait()
	if err := s.Close(); err != nil {
		b.Fatal(err)
	}
}
