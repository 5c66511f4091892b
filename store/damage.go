package store

import (
	"bytes"
	"errors"
	"fmt"
	"hash/crc32"
	"io/fs"
	"path/filepath"

	"github.com/fusionmq/fusionmq/store/log"
	"github.com/fusionmq/fusionmq/store/queue"
	"github.com/fusionmq/fusionmq/store/record"
	"github.com/fusionmq/fusionmq/store/vfs"
)

// How far the log was synced once, and which parts of it turned out damaged, are kept with the metadata: without that a bad byte
// in the middle of a log that has to be read again could not be told from the end that a crash has left.

// durable is the content of config/fusionmq.synced, text:
//
//	synced POSITION
//	damaged FROM TO      any number of times
//	crc32c HEX           of all before
type durable struct {
	synced  int64
	damaged []log.Range
}

func (d durable) encode() []byte {
	b := fmt.Appendf(nil, "synced %d\n", d.synced)
	for _, r := range d.damaged {
		b = fmt.Appendf(b, "damaged %d %d\n", r.From, r.To)
	}
	return sealed(b)
}

// sealed appends a last line to a text, its checksum.
func sealed(text []byte) []byte {
	return fmt.Appendf(text, "crc32c %08x\n", crc32.Checksum(text, castagnoli))
}

// unsealed is the text that sealed was given; false when it is not what was written.
func unsealed(b []byte) (text []byte, ok bool) {
	n := len(b) - len("crc32c 01234567\n")
	return b[:max(n, 0)], n >= 0 && bytes.Equal(sealed(b[:n:n]), b)
}

var errDurable = errors.New("is not what was written")

func decodeDurable(b []byte) (d durable, err error) {
	text, ok := unsealed(b)
	if !ok {
		return d, errDurable
	}
	for line := range bytes.Lines(text) {
		var r log.Range
		if n, _ := fmt.Sscanf(string(line), "damaged %d %d\n", &r.From, &r.To); n == 2 && r.From >= 0 && r.From < r.To {
			d.damaged = append(d.damaged, r)
		} else if n, _ := fmt.Sscanf(string(line), "synced %d\n", &d.synced); n != 1 || d.synced < 0 {
			return durable{}, errDurable
		}
	}
	return d, nil
}

// loadDurable reads the file; without one, nothing is known.
func (s *Store) loadDurable() (d durable, err error) {
	name := s.path(configDir, SyncedName)
	b, err := vfs.ReadFile(s.o.FS, name, 64<<20)
	if errors.Is(err, fs.ErrNotExist) {
		return d, nil
	}
	if err != nil {
		return d, err
	}
	if d, err = decodeDurable(b); err != nil {
		s.event(levelWarn, "it is not known how far the log was synced", "file", name, "err", err)
		return durable{}, nil
	}
	return d, nil
}

// ReadSynced reads how far the log of a directory was synced once, and which parts of it are known to be damaged, while no store has it open.
// Without the file it is an fs.ErrNotExist.
func ReadSynced(fsys vfs.FS, dir string) (position int64, damaged []log.Range, err error) {
	name := filepath.Join(dir, configDir, SyncedName)
	b, err := vfs.ReadFile(fsys, name, 64<<20)
	if err != nil {
		return 0, nil, err
	}
	d, err := decodeDurable(b)
	if err != nil {
		err = fmt.Errorf("%s %w", name, err)
	}
	return d.synced, d.damaged, err
}

// saveDurable writes how far the log is synced. The caller is the only one.
func (s *Store) saveDurable(synced int64) error {
	b := durable{synced, s.log.Damaged()}.encode()
	if bytes.Equal(b, s.durable) {
		return nil
	}
	if err := vfs.WriteFile(s.o.FS, s.path(configDir, SyncedName), b, ""); err != nil {
		return err
	}
	s.durable = b
	return nil
}

// syncLog syncs the log and writes down how far.
func (s *Store) syncLog() error {
	if err := s.log.Sync(); err != nil {
		return err
	}
	return s.saveDurable(s.log.Synced())
}

// replayDamaged gives the index what can still be told of the records in a damaged range: those whose head is sound keep their queue offset.
// Readers get an error for them.
func (s *Store) replayDamaged(r log.Range) error {
	for at := r.From; at < r.To; {
		b, release, err := s.log.ReadDamaged(at, r.To)
		if err != nil {
			return passing(err)
		}
		v, err := record.Parse(b)
		if err != nil || v.PhysicalOffset() != at {
			release()
			return nil
		}
		e := queue.Entry{Address: at, Position: at, Size: v.Size(), TagsCode: v.TagsCode(), Time: v.StoreTime()}
		topic, id, offset, tx := string(v.Topic()), v.QueueID(), v.QueueOffset(), v.TxType()
		release()
		if q := s.queueOf(topic, id); q != nil && q.Next() == offset && tx != record.FlagTxPrepared && tx != record.FlagTxRollback {
			if err := q.Put(offset, e, true); err != nil {
				s.event(levelError, "damaged record is in no queue", "position", at, "err", err)
			}
		}
		at += int64(e.Size)
	}
	return nil
}

// fillGap makes entries without a record for the offsets that are missing before e, when the log is damaged where their records must have
// been. Their addresses lie just below that of e, inside the record before it, where no record begins.
func (s *Store) fillGap(q *queue.Queue, gap *queue.GapError, e queue.Entry) error {
	n, last := gap.Got-gap.Want, q.Newest()
	var lost int64
	var first log.Range
	for r, ok := s.log.DamageIn(last+1, e.Address); ok; r, ok = s.log.DamageIn(r.To, e.Address) {
		if lost == 0 {
			first = r
		}
		lost += r.To - r.From
	}
	if n > lost/record.MinSize || e.Address-n <= last {
		return gap
	}
	for k := range n {
		hole := queue.Entry{Address: e.Address - n + k, Position: first.From, Time: e.Time}
		if err := q.Put(gap.Want+k, hole, true); err != nil {
			return err
		}
	}
	s.event(levelError, "messages of a queue are lost in a damaged part of the log", "topic", q.Topic().Name(), "queue", q.ID(), "first", gap.Want, "count", n, "from", first.From, "to", first.To)
	return q.Put(gap.Got, e, true)
}

// Damage is what is known of damage to the log.
type Damage struct {
	Ranges []log.Range // in order; their bytes are left as they are
	Bytes  int64
}

// Damage returns what is known of damage to the log: parts that were on the disk once and are not valid any more. Readers get an error
// for what was there.
func (s *Store) Damage() Damage {
	d := Damage{Ranges: s.log.Damaged()}
	for _, r := range d.Ranges {
		d.Bytes += r.To - r.From
	}
	return d
}
