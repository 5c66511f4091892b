package store

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strings"
	"time"

	"github.com/fusionmq/fusionmq/store/log"
	"github.com/fusionmq/fusionmq/store/meta"
	"github.com/fusionmq/fusionmq/store/queue"
	"github.com/fusionmq/fusionmq/store/record"
	"github.com/fusionmq/fusionmq/store/vfs"
)

// Open locks, recovers and opens a store directory. Nothing is changed when another process has it or when its format or its
// segment size is not what this program and these options expect.
//
// Order matters: the lock comes before anything is read, the abort file is durable before anything is written, the log's end is
// known and durable before the views are looked at, and the views are complete before the first append.
func Open(o Options) (*Store, error) {
	o = o.withDefaults()
	if err := o.validate(); err != nil {
		return nil, err
	}
	s := &Store{o: o, stop: make(chan struct{})}
	s.topics.byName, s.topics.owed = map[string]*topic{}, map[string]bool{}
	s.dispatch.init(s)
	s.publisher.init(s)
	s.ends.init(s, false)
	s.syncEnds.init(s, true)
	s.clean.s = s
	s.answers.s = s
	s.once.kept.wake = make(chan struct{}, 1)
	began := time.Now()
	if err := s.open(); err != nil {
		err = fmt.Errorf("open store %s: %w", o.Dir, err)
		return nil, errors.Join(err, s.release())
	}
	s.event(levelInfo, "store opened", "log_bytes", s.log.Written()-s.log.Min(), "log_end", s.log.Written(), "took_ms", time.Since(began).Milliseconds())
	return s, nil
}

func (s *Store) open() error {
	if err := s.o.FS.MkdirAll(s.o.Dir); err != nil {
		return err
	}
	var err error
	if s.lock, err = s.o.FS.Lock(s.path(lockName), holder()); err != nil {
		var held *vfs.HeldError
		if errors.As(err, &held) {
			return fmt.Errorf("%w: %w", ErrLocked, err)
		}
		return err
	}
	if err := s.o.FS.MkdirAll(s.path(logDir)); err != nil {
		return err
	}
	marked, err := s.checkFormat()
	if err != nil {
		return err
	}
	_, err = s.o.FS.Stat(s.path(abortName))
	clean := errors.Is(err, fs.ErrNotExist)
	if err != nil && !clean {
		return err
	}
	known, err := s.loadDurable()
	if err != nil {
		return err
	}
	s.durable = known.encode()
	s.log, err = log.Open(log.Options{
		FS: s.o.FS, Dir: s.path(logDir), SegmentBytes: s.o.SegmentBytes, Unclean: !clean && marked, FlushInterval: s.o.FlushInterval,
		Durable: known.synced,
		Reserve: 2 * s.o.SegmentBytes, // all that is owed in one segment, and what is written beside it, may begin two
		Now:     s.now,
		Written: s.written, Synced: s.synced, Event: s.event,
	})
	if err != nil {
		return err
	}
	s.log.SetDamaged(known.damaged)
	if !marked {
		if err := s.markFormat(); err != nil {
			return err
		}
	}
	if err := vfs.WriteFile(s.o.FS, s.path(abortName), fmt.Appendf(nil, "%d", os.Getpid()), ""); err != nil {
		return err
	}
	if err := s.o.FS.MkdirAll(s.path(ownDir)); err != nil {
		return err
	}
	topicsLost := false
	s.tables.topics, s.tables.groups, s.tables.offsets, err = meta.Open(meta.Config{
		FS: s.o.FS, Dir: s.path(configDir), Now: s.o.Now,
		Damaged: func(d meta.Damage) {
			topicsLost = topicsLost || d.Table == meta.TopicTable
			s.event(levelError, "config file is damaged", "damage", fmt.Sprint(d))
		},
	})
	if err != nil {
		return err
	}
	if err := s.loadLevels(); err != nil {
		return err
	}
	if err := s.recover(clean); err != nil {
		return err
	}
	if err := s.settleLevels(); err != nil {
		return err
	}
	s.openFaces()
	s.tables.topics.OnChange(func(c *meta.Topic) { s.setTopic(c) })
	if topicsLost || s.tables.topics.Len() == 0 {
		if err := s.rebuildTopics(); err != nil {
			return err
		}
	}
	s.log.Start()
	s.done.Add(2)
	go s.housekeeping()
	go s.clean.run()
	s.dispatch.done.Add(1)
	go s.dispatch.run()
	if s.adopting {
		if err := s.adopt(); err != nil {
			return err
		}
	}
	s.done.Add(1)
	go s.keepIDs()
	if !s.o.Still {
		s.done.Add(1)
		go s.publisher.run()
	}
	return nil
}

// holder is what a second start shows of the first.
func holder() []byte {
	name := "unknown command"
	if len(os.Args) > 0 {
		name = strings.Join(os.Args, " ")
	}
	if len(name) > 200 {
		name = name[:200] + "..."
	}
	return fmt.Appendf(nil, "process %d (%s) since %s", os.Getpid(), name, time.Now().Format(time.RFC3339))
}

// recover finds the end of the log, opens the index, and replays what the snapshots do not cover.
func (s *Store) recover(clean bool) error {
	began := time.Now()
	c, ok, err := s.loadCheckpoint()
	if err != nil {
		return err
	}
	if !ok || s.levels.lost {
		c, ok = checkpoint{position: s.log.Min()}, false
	} else if c.position < s.log.Min() || c.position > s.log.Limit() {
		s.event(levelWarn, "checkpoint does not fit the log, the whole log is read", "position", c.position, "log_begin", s.log.Min(), "log_limit", s.log.Limit())
		c, ok = checkpoint{position: s.log.Min()}, false
	}
	if err := s.openRows(); err != nil {
		return err
	}
	if s.machine.Machine, err = s.loadState(&c); err != nil {
		return err
	}
	if err := s.rows.Clean(); err != nil {
		return err
	}
	var restated restated
	r, err := s.log.Recover(c.position, clean && ok && c.clean, func(v record.View) error {
		if c.state == nil {
			restated.see(v)
		}
		return nil
	})
	if err != nil {
		return err
	}
	if r.Older {
		s.event(levelWarn, "checkpoint is older than the log, which is read on from there", "position", c.position, "log_end", r.End)
	}
	stateFrom := c.position
	if c.state == nil {
		if stateFrom, err = s.loadRestated(&restated, stateFrom); err != nil {
			return err
		}
	}
	s.log.SetTime(c.time)
	if r.Damaged > 0 {
		d := s.Damage()
		s.event(levelError, "records that were on the disk are damaged, they are stepped over and left as they are", "found", r.Damaged, "ranges", fmt.Sprint(d.Ranges), "bytes", d.Bytes)
	}
	if err := s.saveDurable(r.End); err != nil { // before anything is appended: what the log has lost must not count as synced
		return err
	}
	switch {
	case r.Behind > 0:
		s.event(levelError, "log ends at a damaged record, valid ones behind it are set aside and not served", "position", r.End, "reason", fmt.Sprint(r.Reason), "records", r.Behind, "files", r.Aside)
	case r.Cut:
		s.event(levelWarn, "log cut behind its last valid record", "position", r.End, "reason", fmt.Sprint(r.Reason))
	}
	// Long spans: with many queues each has a piece in every span, so the fewer spans the fewer pieces to make, write and
	// find. The rest of CheckpointBytes is what is appended while a full span is written.
	spanBytes := s.o.CheckpointBytes / 8 * 7
	s.index, err = queue.Open(queue.Config{
		FS: s.o.FS, Dir: s.path(ownDir, indexDir), LogMin: s.log.Min(), LogEnd: r.End, SpanBytes: spanBytes,
		Failed: func(err error) { s.event(levelError, "queue index file could not be used", "err", err) },
	})
	if err != nil {
		return err
	}
	if err := s.answers.open(s.log.Min(), r.End); err != nil {
		return err
	}
	s.oq = s.ownTopic(OQTopic)
	s.waits = waitTopics{s.ownTopic(HalfTopic), s.ownTopic(ScheduleTopic), s.ownTopic(TimerTopic)}
	s.own = ownTopics{s.ownTopic(MovedTopic), s.ownTopic(StateTopic), s.ownTopic(ExpiryTopic)}
	all, _ := s.tables.topics.All()
	for _, t := range all {
		s.setTopic(t)
	}
	s.markOwed()
	from := min(s.index.Resume(), c.position)
	d := &s.dispatch
	d.syncedPos.Store(r.End)
	d.replaying = true
	err = s.replay(from, stateFrom, r.End)
	d.replaying = false
	if err == nil {
		err = s.saveDurable(r.End) // with the damage that was found
	}
	if err != nil {
		return err
	}
	s.index.Synced(r.End)
	if err := s.openKeys(r.End); err != nil {
		return err
	}
	s.clock.raise(s.log.LastTime())
	s.once.init(s.o.OnceWindow, s.o.OnceBytes, r.End, s.log.LastTime()+1)
	s.lows.begin = s.segmentOf(r.End) + 1
	if err := d.oweWindow(); err != nil {
		return err
	}
	d.mu.end = r.End
	d.pos.Store(r.End)
	d.checkpoint = c.position
	d.marked = false
	for _, l := range s.tables.offsets.Lower(s.queueEnd) {
		s.event(levelWarn, "committed offset was above the end of its queue and is lowered to it", "topic", l.Topic, "group", l.Group, "queue", l.Queue, "offset", l.Offset)
	}
	s.raiseOffsets()
	s.event(levelInfo, "log recovered", "clean", clean, "from", c.position, "replayed_from", from, "end", r.End, "verified_records", r.Records, "took_ms", time.Since(began).Milliseconds())
	return nil
}

// ownTopic makes the entry of a topic that only the store writes.
func (s *Store) ownTopic(name string) *topic {
	s.topics.mu.Lock()
	defer s.topics.mu.Unlock()
	t := s.topicLocked(name)
	t.exists.Store(true)
	return t
}

func (s *Store) queueEnd(topic string, id int32) int64 {
	q := s.index.Queue(topic, id, false)
	if q == nil {
		return 0
	}
	_, end := q.Range()
	return end
}

// drainEvery is how much log a replay puts into the index before it waits for the files to be written.
const drainEvery = 64 << 20

// replay gives the index and, from stateFrom on, the state machine every record in [from, end).
func (s *Store) replay(from, stateFrom, end int64) error {
	resume, drained := s.index.Resume(), from
	damaged := s.log.Damaged()
	stepOver := func(below int64) error {
		for len(damaged) > 0 && damaged[0].From < below {
			if damaged[0].From >= resume {
				if err := s.replayDamaged(damaged[0]); err != nil {
					return err
				}
			}
			damaged = damaged[1:]
		}
		return nil
	}
	each := func(v record.View) error {
		pos := v.PhysicalOffset()
		if err := stepOver(pos); err != nil {
			return err
		}
		if tx := v.TxType(); pos >= resume && tx != record.FlagTxPrepared && tx != record.FlagTxRollback {
			if err := s.replayEntry(v); err != nil {
				return err
			}
			if err := s.replayViews(v); err != nil {
				return err
			}
			if err := s.replayLight(v); err != nil {
				return err
			}
			s.restoreQueues(v)
		}
		if pos >= stateFrom {
			if err := s.dispatch.replay(v); err != nil {
				return err
			}
		}
		if pos-drained > drainEvery {
			drained = pos
			s.index.Synced(pos)
			return s.index.Drain()
		}
		return nil
	}
	for {
		err := s.log.Scan(from, end, each)
		var bad *log.UnreadableError
		if err == nil {
			return stepOver(end)
		}
		if !errors.As(err, &bad) {
			return err
		}
		// Below the checkpoint nothing was verified, and the index has lost its file as well.
		r, no := s.log.StepOver(bad.Position)
		if no != nil {
			return errors.Join(err, no)
		}
		s.event(levelError, "records that were on the disk are damaged, they are stepped over and left as they are", "from", r.From, "to", r.To, "reason", fmt.Sprint(bad.Err))
		if err := stepOver(r.From); err != nil {
			return err
		}
		if r.From >= resume {
			if err := s.replayDamaged(r); err != nil {
				return err
			}
		}
		from = r.To
	}
}

func (s *Store) replayEntry(v record.View) error {
	return s.replayPut(string(v.Topic()), v.QueueID(), v.QueueOffset(), entryOf(v))
}

// entryOf is the queue entry of a record.
func entryOf(v record.View) queue.Entry {
	pos := v.PhysicalOffset()
	return queue.Entry{Address: pos, Position: pos, Size: v.Size(), TagsCode: v.TagsCode(), Time: v.StoreTime()}
}

func (s *Store) replayPut(topic string, id int32, offset int64, e queue.Entry) error {
	q := s.queueOf(topic, id)
	if q == nil {
		if q = s.index.Queue(topic, id, true); q == nil {
			s.event(levelError, "record has a queue id out of range and is in no queue", "position", e.Address, "queue", id)
			return nil
		}
	}
	err := q.Put(offset, e, true)
	var gap *queue.GapError
	if errors.As(err, &gap) && s.fillGap(q, gap, e) == nil {
		return nil
	}
	if gap != nil {
		s.event(levelError, "record skips offsets of its queue and is in no queue", "position", e.Address, "err", err)
		return nil
	}
	return err
}

// shutdown brings everything to the disk and lets go of the directory. The abort file stays when that failed.
func (s *Store) shutdown() error {
	s.answers.halt()
	err := s.log.Stop()
	close(s.dispatch.stop)
	s.dispatch.done.Wait()
	if s.dispatch.behind {
		err = errors.Join(err, fmt.Errorf("%w: the next start reads the log from the last checkpoint on", ErrUnavailable))
	}
	err = errors.Join(err, s.tables.offsets.Persist())
	end := s.log.Told()
	if err == nil {
		s.answers.save(end)
		err = s.saveDurable(end)
	}
	if err == nil {
		s.index.Synced(end)
		s.keys.Synced(end)
		if err = s.index.Seal(end); err == nil {
			err = s.writeCheckpoint(s.snapshot(end, true))
		}
	}
	clean := err == nil
	err = errors.Join(err, s.closeFiles())
	if clean && err == nil {
		if err = s.o.FS.Remove(s.path(abortName)); err == nil {
			err = s.o.FS.SyncDir(s.o.Dir)
		}
	}
	return errors.Join(err, s.lock.Close())
}

func (s *Store) closeFiles() error {
	var err error
	if s.keys != nil { // first: it reads the log
		err = s.keys.Close()
	}
	if s.index != nil {
		err = errors.Join(err, s.index.Close())
	}
	err = errors.Join(err, s.closeRows())
	if s.log != nil {
		err = errors.Join(err, s.log.Close())
	}
	return err
}

// release undoes a failed Open. The abort file stays, so the next one looks at everything.
func (s *Store) release() error {
	err := s.closeFiles()
	if s.lock != nil {
		err = errors.Join(err, s.lock.Close())
	}
	return err
}

// Flush returns when everything that was appended before the call is durable.
func (s *Store) Flush(context.Context) error { return s.log.Sync() }
