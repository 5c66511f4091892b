package store

import (
	"context"

	"github.com/fusionmq/fusionmq/store/state"
)

// adopt takes over what waits in a directory that another broker wrote. The log alone does not say what of it is still open: that
// broker kept the ends of delays beside the log, and those of transactions in records of its own. So everything that a replay has found
// is dropped, and what is open is held by name. It is done before anything can be published; the mark says so until it is durable.
func (s *Store) adopt() error {
	at, err := s.Operate([]state.Op{{Kind: state.OpAdopt}})
	if err == nil {
		err = s.WaitApplied(context.Background(), at)
	}
	if err == nil {
		err = s.log.Sync()
	}
	if err != nil {
		return err
	}
	s.adopting = false
	return s.markFormat()
}
