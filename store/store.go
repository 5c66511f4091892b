// Package store is the embedded store of FusionMQ: one append-only CommitLog and the views over it.
//
// Start at [Open]. [Store.Append] is the one way in for all producers; [Store.Queue], [Store.ReadTopic] and [Store.RecordAt]
// are the ways to read; [Store.Operate] changes what push groups are owed. The log is RocketMQ's, byte for byte, and a
// directory that an Apache broker wrote opens in place.
//
// What it promises: an acknowledged message is kept at the durability of its topic, which its Result names, and is visible
// to readers when Append returns. Everything but commitlog/ and config/ can be deleted while the store is closed; the next Open
// builds it again with the same answers.
//
// The packages below this one do not know each other; only this one wires them. A record's way: Append encodes it,
// log.Log gives it a place and writes it; in the same pass, in log order, written gives it to the queue index and, when
// push groups may be owed it, to the dispatcher, whose goroutine feeds the state machine and tells the Observer.
//
// Goroutines of an open store: the log's flush and prepare, the index's sealer, the key index's two, the dispatcher, the publisher, the keeper of ids, and housekeeping. All end in
// Close. Locks: topics.mu, then dispatcher.mu or machine.mu; none is held while the log or the index is called, except that
// index calls nest in none of ours.
package store

import (
	"io"
	"net/netip"
	"sync"
	"sync/atomic"
	"time"

	"github.com/fusionmq/fusionmq/store/faces"
	"github.com/fusionmq/fusionmq/store/log"
	"github.com/fusionmq/fusionmq/store/lookup"
	"github.com/fusionmq/fusionmq/store/meta"
	"github.com/fusionmq/fusionmq/store/queue"
	"github.com/fusionmq/fusionmq/store/state"
)

// Observer is told about state changes in log order, by one goroutine; it must not block and must not call Append or
// Operate from inside a call. What it cannot keep it may drop: everything can be read again with Retries and Cursor.
type Observer interface {
	// Owed: these messages are visible now and owed to attached groups, in address order per topic.
	Owed([]state.Owed)
	// Applied: the operations of the record at address at have taken effect.
	Applied(at int64, ops []state.Op)
}

// Message is what a producer hands to Append. The store copies what it keeps; slices may be reused after Append returns.
type Message struct {
	Topic          string   // must exist in Topics
	Ref            TopicRef // of Topic, where FindTopic has been asked already
	Queue          int32    // 0 <= Queue; the front end checks the range
	Flag           int32
	SysFlag        int32 // RocketMQ message sysFlag; host bits are set by the store
	BornTime       int64 // milliseconds since 1970
	BornHost       netip.AddrPort
	ReconsumeTimes int32
	PreparedOffset int64
	Body           []byte // stored as it is; 1..MaxBodyBytes
	Properties     []byte // RocketMQ's text: name 0x01 value 0x02 ...; at most MaxPropertiesBytes

	// Joined: the message follows the one before it in the log, or begins the next segment, however many bytes there are. No message of
	// another call comes between the two, so in a queue their offsets follow each other.
	Joined bool

	// Once: of messages with one id, whatever their topics, that are appended within Options.OnceWindow, or while the first is owed to somebody by
	// name, the first that can be stored is, and the others have its Result. Properties begin with the id as UNIQ_KEY, 32 lower-case hex
	// digits, and again as KEYS. A topic with the attribute meta.OnceAttribute asks for the same by topic and UNIQ_KEY, but a half that
	// was rolled back counts no more there.
	Once bool

	// At most one of these, the first that is set, makes the message wait; it is in no queue of its topic until then. Its Result has the
	// address and the queue offset of where it waits.
	Half       bool  // until EndHalves commits it
	DelayLevel int32 // 1 and up: for the time of the level, see Options.DelayLevels
	DeliverAt  int64 // until this time, milliseconds since 1970, at most MaxDelay from now; a time that has passed is no delay
}

// Result is the outcome of one message of an Append.
type Result struct {
	// Err is nil when the message was stored. Otherwise nobody sees it, and it is not in the log, except that with
	// ErrFailed a crash before the repair may leave it there, and with ErrFlushTimeout it is and the other fields are set.
	Err         error
	Address     int64
	QueueOffset int64
	Queue       int32 // that of the message, or of the one stored before it
	Repeated    bool  // the message was stored by an earlier append, of which the other fields tell
	StoreTime   int64 // milliseconds since 1970
	Size        int32
	Durability  meta.Durability // what was reached when Append returned; a message in one call with others may reach more than its topic asks for
}

// Store is an open store directory.
//
// All methods may be called from any goroutine unless they say otherwise.
type Store struct {
	o       Options
	lock    io.Closer
	log     *log.Log
	index   *queue.Index
	keys    *lookup.Index
	tables  tables
	topics  topicTable
	answers answers // of filters
	oq      *topic
	own     ownTopics
	clean   cleaner
	bodies  bodies
	lows    lows
	waits   waitTopics
	levels  struct {
		spans levelSpans              // fixed by Open
		files [len(levelFiles)][]byte // as they are in config/; nil for one that is not there
		lost  bool                    // no file could be read: a snapshot may be of other levels than spans
	}
	claims    claims
	ends      joiner // of topics that are not sync
	syncEnds  joiner
	publisher publisher
	rows      rows
	saving    sync.Mutex // of checkpoints
	machine   struct {
		sync.RWMutex
		*state.Machine // changed by the dispatcher alone
	}
	dispatch dispatcher
	badReads badReads
	durable  []byte // content of the file that saveDurable wrote last
	once     onceTable
	clock    clock
	appends  atomic.Int64 // messages appended by producers

	adopting bool  // another broker's directory, see adopt; of Open
	foreign  int64 // the log below it is another broker's; set by Open

	faces *faces.Table // whose the group names are

	closing sync.Mutex
	closed  atomic.Bool
	stop    chan struct{}
	done    sync.WaitGroup
}

// ownTopics are those that only the store writes, but for the operate queue.
type ownTopics struct{ moved, state, expiry *topic }

type tables struct {
	topics  *meta.Topics
	groups  *meta.Groups
	offsets *meta.Offsets
}

// Topics, Groups and Offsets are the metadata of config/*.json.
func (s *Store) Topics() *meta.Topics   { return s.tables.topics }
func (s *Store) Groups() *meta.Groups   { return s.tables.groups }
func (s *Store) Offsets() *meta.Offsets { return s.tables.offsets }

// Bounds are the first and the next log position, and how much of it is synced and dispatched.
type Bounds struct{ Min, Max, Synced, Dispatched int64 }

// Bounds returns them as of now; each value is exact, together they may be of different moments.
func (s *Store) Bounds() Bounds {
	b := Bounds{Min: s.log.Min(), Synced: s.log.Synced(), Dispatched: s.dispatch.covered()}
	b.Max = s.log.Told()
	return b
}

// SegmentBytes is the length of one file of the log in bytes. A record with all that belongs to it must fit one.
func (s *Store) SegmentBytes() int64 { return s.o.SegmentBytes }

// Stats count since Open.
type Stats struct {
	Appends int64 // messages appended by producers
	Mapped  int64 // bytes of the log that are mapped at the moment
	Log     log.Stats
}

// Stats returns the counters.
func (s *Store) Stats() Stats {
	_, mapped := s.log.Mapped()
	return Stats{Appends: s.appends.Load(), Mapped: mapped, Log: s.log.Stats()}
}

// Err says why the store takes no messages at the moment, nil when it does: ErrFailed or ErrNoSpace with the measured
// values.
func (s *Store) Err() error {
	if s.closed.Load() {
		return ErrClosed
	}
	if full := s.clean.full.Load(); full != nil {
		return full
	}
	return s.log.Failed()
}

// Close stops the background work, syncs everything, removes the abort file and releases the lock. Appends that are
// under way end first, later ones fail with ErrClosed. Readers must have ended, except that bytes they hold stay valid until they release
// them.
func (s *Store) Close() error {
	s.closing.Lock()
	defer s.closing.Unlock()
	if s.closed.Swap(true) {
		return nil
	}
	close(s.stop)
	s.done.Wait()
	return s.shutdown()
}

// housekeeping writes consumer offsets and checkpoints.
func (s *Store) housekeeping() {
	defer s.done.Done()
	persist := time.NewTicker(s.o.PersistInterval)
	defer persist.Stop()
	failing := false
	for {
		select {
		case <-s.stop:
			return
		case <-persist.C:
			err := s.tables.offsets.Persist()
			if err != nil && !failing {
				s.event(levelError, "consumer offsets could not be written, trying again", "interval_ms", s.o.PersistInterval.Milliseconds(), "err", err)
			}
			failing = err != nil
		case c := <-s.dispatch.checkpoints:
			_ = s.saveCheckpoint(c) // it has told
		}
	}
}
