package store

import (
	"github.com/fusionmq/fusionmq/store/runs"
	"github.com/fusionmq/fusionmq/store/state"
)

// HookPush has fn called by the writer each time that it has looked at the marks of a batch's topics and not yet pushed what
// the dispatcher needs of it. nil ends that.
func (s *Store) HookPush(fn func()) {
	s.dispatch.pushing.Lock()
	defer s.dispatch.pushing.Unlock()
	s.dispatch.looked = fn
}

// DispatcherWaits tells whether the dispatcher waits for the batch that the writer is about to push. It is for a function given
// to HookPush: in it a reader is let in unless somebody waits to write.
func (s *Store) DispatcherWaits() bool {
	if !s.dispatch.pushing.TryRLock() {
		return true
	}
	s.dispatch.pushing.RUnlock()
	return false
}

// Dispatched is the position that everything has been dispatched below.
func (s *Store) Dispatched() int64 { return s.dispatch.position() }

// Selects evaluates a filter for an entry, as Select does.
func (s *Store) Selects(f *PullFilter, e TopicEntry) bool { return s.selects(f, e.Entry) }

// Look is what the cleaner does when its time has come.
func (s *Store) Look() (segments int, err error) { return s.clean.look(false) }

// TailRows has the table of what waits written to files when this many rows are in memory.
func (o *Options) TailRows(n int) { o.tailRows = n }

// Rows describes the table of what waits.
func (s *Store) Rows() runs.Stats { return s.rows.Stats() }

// KeepBodies is what happens to operations before they are written.
func (s *Store) KeepBodies(ops []state.Op) ([]state.Op, error) {
	s.bodies.mu.RLock()
	defer s.bodies.mu.RUnlock()
	return s.keepBodies(ops)
}

// HookBodies has fn called each time that bodies were appended again.
func (s *Store) HookBodies(fn func()) { s.bodies.said = fn }

// BeginDeletion has bodies below a position named by no operation any more.
func (s *Store) BeginDeletion(position int64) { s.cutBodies(position) }

// HookRestated has fn called each time that the cleaner has restated a piece of the state.
func (s *Store) HookRestated(fn func(part int, last bool)) { s.clean.said = fn }

// Join writes an operation as the ends of what waits are written.
func (s *Store) Join(op state.Op) error { return s.ends.operate([]state.Op{op}) }

// OperateSync is Operate that returns when the record is durable.
func (s *Store) OperateSync(ops []state.Op) error {
	_, err := s.operate(ops, true)
	return err
}

// RowsRead is how many rows of what waits the publisher has read.
func (s *Store) RowsRead() int64 { return s.publisher.rows.Load() }

// ScanKeys reads the keys of a part of the log, as the key index does.
func (s *Store) ScanKeys(from, end int64, fn func(address, time int64, hashes []uint64) error) error {
	return s.scanKeys(from, end, fn)
}
