package store

import (
	"errors"

	"github.com/fusionmq/fusionmq/store/queue"
	"github.com/fusionmq/fusionmq/store/record"
	"github.com/fusionmq/fusionmq/store/state"
)

type tmpMachine struct{}

func (tmpMachine) Save(b []byte) []byte { return b }
func (tmpMachine) Topics() []string     { return nil }

var errNoState = errors.New("store: push state is not wired yet")

func (s *Store) loadState(c *checkpoint, ok bool) (*tmpMachine, error) { return &tmpMachine{}, nil }

func (d *dispatcher) replay(v record.View) error                                             { return nil }
func (d *dispatcher) operations(v record.View)                                               {}
func (d *dispatcher) message(topic string, id int32, e queue.Entry, props []byte, held bool) {}

// Operate appends ops.
func (s *Store) Operate(ops []state.Op) (at int64, err error) { return 0, errNoState }

// GroupBinding is a binding with its owner and the address of the record that made it.
type GroupBinding struct {
	Topic, Group string
	Binding      state.Binding
	Since        int64
}

func (s *Store) Bindings() []GroupBinding                                       { return nil }
func (s *Store) Cursor(topic, group string) (pos state.GroupPosition, ok bool)  { return }
func (s *Store) Retries(group string, after state.Retry, dst []state.Retry) int { return 0 }
func (s *Store) RetryCount(group string) int                                    { return 0 }
