package store

import (
	"net/netip"
	"time"

	"github.com/fusionmq/fusionmq/store/dedup"
	"github.com/fusionmq/fusionmq/store/meta"
	"github.com/fusionmq/fusionmq/store/state"
	"github.com/fusionmq/fusionmq/store/vfs"
)

// Options configure Open. The zero value of a field means its default.
type Options struct {
	Dir string // store directory; created when missing
	FS  vfs.FS // default vfs.OS

	// SegmentBytes is the size of one commitlog file in bytes. Default: that of the directory, 1 GiB for a new one; a
	// multiple of 4 KiB from 64 KiB to 1 GiB. Fixed when the directory is made: Open returns ErrConfigChanged if it differs.
	SegmentBytes int64

	StoreHost  netip.AddrPort  // written as STOREHOST, so part of every offset message id. Default 127.0.0.1:10911
	Durability meta.Durability // of topics that state none. Default meta.Async
	Exchange   state.Exchange  // nil: no push groups; state operations are replayed but nothing is owed
	Observer   Observer        // nil: nobody is told

	Events func(Event)      // nil: events are dropped. Called from the goroutines of the store and of callers, with locks held: must not block nor call the store
	Now    func() time.Time // default time.Now

	FlushInterval   time.Duration // how often the log is synced in the background. Default 500 ms, at least 1 ms
	PersistInterval time.Duration // how often changed consumer offsets are written. Default 5 s, at least 1 ms

	// OnceWindow is how long the id of a message that is to be stored once is remembered at least; it is for as long as the message is owed
	// to somebody by name, too. Default 10 min, 1 s to 24 h. OnceBytes is about the memory for it, used from the first such message on, and a
	// quarter more when much is owed; with more messages the key index is asked more often. Default 8 MiB, from 64 KiB to 1 GiB.
	OnceWindow time.Duration
	OnceBytes  int

	// CheckpointBytes is the most log, in bytes, that is read again after an unclean stop, but for what was not synced.
	// Default 256 MiB, at least 64 KiB.
	CheckpointBytes int64

	// DelayLevels are the delays of levels 1, 2, ... Default what the directory had last, and for a new one RocketMQ's 18 levels from 1 s to 2 h; at
	// most 64 levels, each from 1 ms up to 40 days. A message keeps the delay that its level has when it is stored.
	DelayLevels []time.Duration

	// Still keeps what is due waiting: for tools that look at a directory and want it to stay as it is.
	Still bool

	tailRows int // of the table of what waits, for tests. Default that of runs

	Retention Retention // when segments of the log are deleted
}

// Limits of messages.
const (
	MaxBodyBytes       = 4 << 20 // bytes of a message's body
	MaxPropertiesBytes = 32767   // bytes of its encoded properties
)

const (
	defaultSegment = 1 << 30
	minSegment     = 64 << 10
	maxSegment     = 1 << 30
	segmentStep    = 4 << 10
)

func (o Options) withDefaults() Options {
	if o.FS == nil {
		o.FS = vfs.OS
	}
	if o.Durability == 0 {
		o.Durability = meta.Async
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	if !o.StoreHost.IsValid() {
		o.StoreHost = netip.MustParseAddrPort("127.0.0.1:10911")
	}
	if o.FlushInterval == 0 {
		o.FlushInterval = 500 * time.Millisecond
	}
	if o.PersistInterval == 0 {
		o.PersistInterval = 5 * time.Second
	}
	if o.OnceWindow == 0 {
		o.OnceWindow = 10 * time.Minute
	}
	if o.OnceBytes == 0 {
		o.OnceBytes = 8 << 20
	}
	if o.CheckpointBytes == 0 {
		o.CheckpointBytes = 256 << 20
	}
	o.Retention = o.Retention.withDefaults()
	return o
}

func (o Options) validate() error {
	switch {
	case o.Dir == "":
		return &FieldError{"length of Dir", 0, "the path of a directory"}
	case o.SegmentBytes != 0 && (o.SegmentBytes < minSegment || o.SegmentBytes > maxSegment || o.SegmentBytes%segmentStep != 0):
		return &FieldError{"SegmentBytes", o.SegmentBytes, "a multiple of 4096 from 65536 to 1073741824"}
	case o.Durability > meta.Sync:
		return &FieldError{"Durability", int64(o.Durability), "memory (1), async (2) or sync (3)"}
	case o.FlushInterval < time.Millisecond:
		return &FieldError{"FlushInterval in ns", int64(o.FlushInterval), "at least 1 ms"}
	case o.PersistInterval < time.Millisecond:
		return &FieldError{"PersistInterval in ns", int64(o.PersistInterval), "at least 1 ms"}
	case o.OnceWindow < time.Second || o.OnceWindow > 24*time.Hour:
		return &FieldError{"OnceWindow in ns", int64(o.OnceWindow), "1 s to 24 h"}
	case o.OnceBytes < dedup.MinBytes || o.OnceBytes > dedup.MaxBytes:
		return &FieldError{"OnceBytes", int64(o.OnceBytes), "65536 to 1073741824"}
	case o.CheckpointBytes < minSegment:
		return &FieldError{"CheckpointBytes", o.CheckpointBytes, "at least 65536"}
	case len(o.DelayLevels) > maxLevels:
		return &FieldError{"number of DelayLevels", int64(len(o.DelayLevels)), "at most 64"}
	}
	for _, d := range o.DelayLevels {
		if err := checkLevel(d); err != nil {
			return err
		}
	}
	return o.Retention.validate()
}

// maxLevels is the most delay levels.
const maxLevels = 64

func checkLevel(d time.Duration) error {
	if d < time.Millisecond || d.Milliseconds() > MaxDelay {
		return &FieldError{"delay of a level in ns", int64(d), "1 ms to 40 days"}
	}
	return nil
}

// Event is something an operator may want to see; Name is constant text, Attrs alternate key and value as in log/slog.
type Event struct {
	Level int // slog levels
	Name  string
	Attrs []any
}

// Levels of events, as in log/slog.
const (
	levelInfo  = 0
	levelWarn  = 4
	levelError = 8
)

func (s *Store) event(level int, name string, attrs ...any) {
	if s.o.Events != nil {
		s.o.Events(Event{Level: level, Name: name, Attrs: attrs})
	}
}
