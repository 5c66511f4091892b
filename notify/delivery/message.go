package delivery

import (
	"sync/atomic"

	"github.com/fusionmq/fusionmq/store/state"
)

// Message is the head of a stored message that somebody is owed: where it lies, and how far its outcome is known.
// The exported fields never change. One Message is shared by all groups that are owed it through the window; one that
// comes through a cursor or a retry line belongs to its group.
type Message struct {
	Topic    string
	Queue    int32
	Size     int32 // bytes of the record
	Address  int64
	Position int64
	Time     int64 // store time, milliseconds since 1970
	TagsCode int64
	Failed   int64 // of a retry: when the attempt before failed, milliseconds since 1970; 0 when there was none
	// Unchecked says that the message was matched by its queue entry only: whoever loads it finds out whether the group is
	// really owed it.
	Unchecked bool

	done bool // of a cursor message, guarded by the group's lock

	id atomic.Uint64 // first eight bytes of the message id, 0 until somebody encoded it

	*shares // of a window message; nil for others, so that the many that a cursor passes stay small
}

// shares are how far a window message is done, guarded by the ledger's lock.
type shares struct {
	prev, next *Message // in address order of the topic's window; nil when it has left
	targets    []string
	states     []shareState // of targets; nil while there is one target and it is pending
	few        [8]shareState
	open       int32 // targets in state pending
	lingers    bool  // is in the ledger's linger list
	closed     bool  // is in the ledger's done list
}

// shareState is how one target of a window message stands.
type shareState uint8

const (
	pending shareState = iota
	acked              // the group has it, and no operation says so yet
	settled            // nothing more to write: it failed and is a retry, or was moved, or the acknowledgement is written
)

// SetID remembers the id that a message has on the wire, so that an answer for another message can be told.
func (m *Message) SetID(first8 uint64) { m.id.Store(first8) }

// arena hands out values from blocks. They are never reused, so a late answer or a slow writer that still holds one
// can never see another message in it; a block is garbage when the last of its values is.
type arena[T any] struct{ free []T }

const arenaBlock = 64

func (a *arena[T]) take() *T {
	if len(a.free) == 0 {
		a.free = make([]T, arenaBlock)
	}
	v := &a.free[0]
	a.free = a.free[1:]
	return v
}

// windowMessage is a Message with what the ledger knows of it.
type windowMessage struct {
	Message
	own shares
}

// Batch makes Messages of one reader.
type Batch struct{ arena arena[Message] }

// New makes a Message for a group's own use.
func (b *Batch) New(topic string, queue, size int32, address, position, time, tagsCode int64) *Message {
	m := b.arena.take()
	m.Topic, m.Queue, m.Size, m.Address, m.Position, m.Time, m.TagsCode = topic, queue, size, address, position, time, tagsCode
	return m
}

// Delivery is one message on its way to one connection.
type Delivery struct {
	Message *Message
	Group   string
	Attempt int32  // 1 at first
	Handle  uint32 // names the delivery on its connection; the answer repeats it
}

// Conn is what a group needs of a connection. Its methods are called with the group's lock held and must not block
// or call the group.
type Conn interface {
	// Room tells whether the connection takes another message now. After it said no, the service is told when there
	// is room again.
	Room() bool
	// Push adds a delivery to what the connection writes next, Kick makes it write.
	Push(Delivery)
	Kick()
}

// Verdict is a subscriber's answer.
type Verdict uint8

const (
	Acked   Verdict = 1 + iota // taken
	Failed                     // refused, or the handler failed
	Busy                       // the machine is full
	Unknown                    // the machine has no listener for it
)

// outcome is what became of one group's share of a message.
type outcome struct {
	msg     *Message
	source  source
	share   int32
	failed  bool
	attempt int32 // attempts made, when failed
	due     int64
}

// source is where a group has a message from.
type source uint8

const (
	fromWindow source = iota // the message is in the store's window, owed to several groups
	fromCursor               // read through the cursor of a detached group
	fromRetry                // from the group's retry line
)

// Retry is a retry that is due, with the head of its message.
type Retry struct {
	state.Retry
	Message *Message
}
