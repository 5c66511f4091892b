package store

import (
	"github.com/fusionmq/fusionmq/store/record"
	"github.com/fusionmq/fusionmq/store/state"
)

// Records calls fn for every record of the log from a position on, which is where one begins, in the order of the log; the views that
// operate-queue records make are for ViewsOf. A view of a record is valid during the call. For tools.
func (s *Store) Records(from int64, fn func(v record.View) error) error {
	return s.log.Scan(max(from, s.log.Min()), s.log.Told(), fn)
}

// Preview returns the record that what waits would be if it were published now, with queue offset 0. For tools.
func (s *Store) Preview(d state.Due) ([]byte, error) {
	op, err := s.publisher.op(&d)
	if err != nil {
		return nil, err
	}
	return s.shown(d.Address, &op, s.o.Now().UnixMilli(), 0, 0)
}

// Waiting fills dst with the undecided halves (state.OwedHalf) or the delays (state.OwedDelay) with an address from first on, by address,
// and returns how many. For tools.
func (s *Store) Waiting(kind state.OwedKind, first int64, dst []state.OwedEntry) int {
	s.machine.RLock()
	defer s.machine.RUnlock()
	return s.machine.Waiting(kind, first, dst)
}
