package notify

import (
	"fmt"
	"time"

	"github.com/fusionmq/fusionmq/store/state"
)

// maxOps is how many operations one operate-queue record may have; a record with many names stays far below the size
// of a message.
const maxOps = 4096

// flushLoop writes outcomes a few milliseconds after the first. It is the natural place to wait, because nobody waits for it.
func (s *Service) flushLoop() {
	defer s.done.Done()
	t := time.NewTimer(time.Hour)
	defer t.Stop()
	for {
		select {
		case <-s.quit:
			return
		case <-s.flushNow:
		}
		for awake := true; awake; {
			t.Reset(s.o.FlushInterval)
			select {
			case <-s.quit:
				return
			case <-t.C:
			}
			var err error
			if awake, err = s.flushSome(false); err != nil {
				s.log.warn("outcomes not written, trying again", "error", err)
				t.Reset(50 * s.o.FlushInterval)
				select {
				case <-s.quit:
					return
				case <-t.C:
				}
			}
		}
	}
}

// flush writes everything there is.
func (s *Service) flush(all bool) error {
	_, err := s.flushSome(all)
	return err
}

// flushSome writes what is due. It reports whether there is, or soon will be, more.
func (s *Service) flushSome(all bool) (more bool, err error) {
	s.commit.Lock()
	defer s.commit.Unlock()
	ops, sleep := s.ledger.Ops(s.commit.pending, s.now(), all)
	_, err = s.writeLocked(ops)
	return !sleep || err != nil, err
}

// writeLocked writes ops and returns the address of the last record. What cannot be written is kept for the next call;
// the order never changes. It is called with commit held.
func (s *Service) writeLocked(ops []state.Op) (at int64, err error) {
	for len(ops) > 0 {
		n := min(len(ops), maxOps)
		if at, err = s.store.Operate(ops[:n]); err != nil {
			s.counters.operateFailures.Add(1)
			s.commit.pending = append([]state.Op(nil), ops...)
			return 0, fmt.Errorf("write %d operations: %w", n, err)
		}
		s.wroteLocked(at, n)
		if n == len(ops) {
			clear(ops)
			s.commit.pending = ops[:0]
		}
		ops = ops[n:]
	}
	return at, nil
}

// writeLast writes ops behind everything pending, and last as the end of the same record, so that last is written if and
// only if the rest is. It is called with commit held.
func (s *Service) writeLast(ops []state.Op, last ...state.Op) (at int64, err error) {
	if len(ops)+len(last) > maxOps {
		if _, err := s.writeLocked(ops); err != nil {
			return 0, err
		}
		ops = s.commit.pending
	}
	all := append(ops, last...)
	if at, err = s.store.Operate(all); err != nil {
		s.counters.operateFailures.Add(1)
		s.commit.pending = all[:len(ops)]
		return 0, fmt.Errorf("write %d operations: %w", len(all), err)
	}
	s.wroteLocked(at, len(all))
	clear(all)
	s.commit.pending = all[:0]
	return at, nil
}

// operate writes operations that an API asked for, behind nothing in particular.
func (s *Service) operate(ops ...state.Op) (at int64, err error) {
	s.commit.Lock()
	defer s.commit.Unlock()
	if len(s.commit.pending) > 0 { // the store refused something: keep the order
		if _, err := s.writeLocked(s.commit.pending); err != nil {
			return 0, err
		}
	}
	at, err = s.store.Operate(ops)
	if err != nil {
		s.counters.operateFailures.Add(1)
		return 0, err
	}
	s.wroteLocked(at, len(ops))
	return at, nil
}

func (s *Service) wroteLocked(at int64, n int) {
	s.commit.last = max(s.commit.last, at)
	s.counters.operations.Add(uint64(n))
	s.counters.operateRecords.Add(1)
}
