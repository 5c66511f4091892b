package store

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/fusionmq/fusionmq/store/vfs"
)

// The delays of the levels in the course of the log are kept with the metadata: so when a message with a level is due is a function of the log
// and of config/, whatever Options.DelayLevels says later.

// levelSpan is what the delays of levels 1, 2, ... are for messages stored at a position of the log or behind it, up to the next span.
type levelSpan struct {
	from   int64
	delays []time.Duration
}

// levelSpans are in the order of their positions; the first is from 0.
type levelSpans []levelSpan

// maxLevelsFile is the largest file that is read, in bytes.
const maxLevelsFile = 64 << 20

// maxLevelSpans bounds the file: more changes than that between two deletions of segments are a mistake, and the oldest go.
const maxLevelSpans = 1000

// at are the delays for what is stored at a position.
func (ls levelSpans) at(position int64) []time.Duration {
	for _, l := range slices.Backward(ls) {
		if l.from <= position {
			return l.delays
		}
	}
	return ls[0].delays
}

// last are the delays for what is stored now.
func (ls levelSpans) last() []time.Duration { return ls[len(ls)-1].delays }

// delayOf is the delay of a level in milliseconds; a level above the last one counts as the last one.
func delayOf(ls []time.Duration, level int32) int64 {
	return ls[min(max(int(level), 1), len(ls))-1].Milliseconds()
}

// encode writes the file: a line `from POSITION DELAY DELAY ...` for each span, and a checksum.
func (ls levelSpans) encode() []byte {
	var b []byte
	for _, l := range ls {
		b = fmt.Appendf(b, "from %d", l.from)
		for _, d := range l.delays {
			b = fmt.Appendf(b, " %s", d)
		}
		b = append(b, '\n')
	}
	return sealed(b)
}

var errLevels = errors.New("no table of delay levels")

func decodeLevels(b []byte) (ls levelSpans, err error) {
	text, ok := unsealed(b)
	if !ok {
		return nil, errLevels
	}
	for line := range bytes.Lines(text) {
		words := strings.Fields(string(line))
		var l levelSpan
		if len(words) < 3 || words[0] != "from" || len(words)-2 > maxLevels {
			return nil, errLevels
		}
		if n, _ := fmt.Sscanf(words[1], "%d", &l.from); n != 1 || l.from < 0 || len(ls) > 0 && l.from <= ls[len(ls)-1].from {
			return nil, errLevels
		}
		for _, w := range words[2:] {
			d, err := time.ParseDuration(w)
			if err != nil || checkLevel(d) != nil {
				return nil, errLevels
			}
			l.delays = append(l.delays, d)
		}
		ls = append(ls, l)
	}
	if len(ls) == 0 || ls[0].from != 0 {
		return nil, errLevels
	}
	return ls, nil
}

// levelFiles are the file and a copy of it: the log alone does not say what the levels were.
var levelFiles = [...]string{LevelsName, LevelsName + ".bak"}

// DamagedLevels is what is wrong with the file of the delays of the levels in the config directory of a closed store, nil when it can be used, and
// with its copy. Neither is there while the levels are RocketMQ's: then both are nil.
func DamagedLevels(fsys vfs.FS, config string) (file, backup error) {
	var bad [len(levelFiles)]error
	for i, name := range levelFiles {
		b, err := vfs.ReadFile(fsys, filepath.Join(config, name), maxLevelsFile)
		if err == nil {
			_, err = decodeLevels(b)
		}
		bad[i] = err
	}
	if errors.Is(bad[0], fs.ErrNotExist) && errors.Is(bad[1], fs.ErrNotExist) {
		return nil, nil
	}
	return bad[0], bad[1]
}

// loadLevels reads the file, or else its copy. Without them the levels were RocketMQ's from the start.
func (s *Store) loadLevels() error {
	s.levels.spans = levelSpans{{0, delayLevels}}
	found := false
	var first error
	for i, name := range levelFiles {
		name = s.path(configDir, name)
		b, err := vfs.ReadFile(s.o.FS, name, maxLevelsFile)
		s.levels.files[i] = b
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		var ls levelSpans
		if err == nil {
			ls, err = decodeLevels(b)
		}
		if i == 0 {
			first = err
		}
		if err == nil && !found {
			s.levels.spans, found = ls, true
			if i > 0 {
				s.event(levelError, "delays of the levels are read from the copy of their file", "file", s.path(configDir, LevelsName), "err", first)
			}
		}
	}
	if found || s.levels.files[0] == nil && s.levels.files[1] == nil {
		return nil
	}
	s.event(levelError, "delays of the levels are not known, those that are set now count for all messages with a level", "file", s.path(configDir, LevelsName), "err", first)
	if len(s.o.DelayLevels) > 0 {
		s.levels.spans[0].delays = s.o.DelayLevels
	}
	s.levels.lost = true
	return nil
}

// settleLevels writes the file when the levels are others than before from the end of the log on, before anything is appended there.
func (s *Store) settleLevels() error {
	ls, end := slices.Clone(s.levels.spans), s.log.Written()
	for len(ls) > 1 && ls[1].from <= s.log.Min() { // nothing is left that was stored under the first
		ls = slices.Delete(ls, 0, 1)
		ls[0].from = 0
	}
	now := s.o.DelayLevels
	if len(now) == 0 {
		now = ls.last()
	}
	for len(ls) > 0 && ls[len(ls)-1].from >= end { // what was stored under it was lost with the end of the log
		ls = ls[:len(ls)-1]
	}
	if len(ls) == 0 {
		ls = levelSpans{{0, now}}
	} else if !slices.Equal(ls.last(), now) {
		ls = append(ls, levelSpan{end, now})
	}
	if len(ls) > maxLevelSpans {
		ls = slices.Delete(ls, 0, len(ls)-maxLevelSpans)
		ls[0].from = 0
	}
	s.levels.spans = ls
	if s.levels.files[0] == nil && s.levels.files[1] == nil && len(ls) == 1 && slices.Equal(now, delayLevels) {
		return nil
	}
	b := ls.encode()
	for i, name := range levelFiles {
		if bytes.Equal(b, s.levels.files[i]) {
			continue
		}
		if err := vfs.WriteFile(s.o.FS, s.path(configDir, name), b, ""); err != nil {
			return err
		}
		s.levels.files[i] = b
	}
	return nil
}

// LevelDelay is the delay that a level has now.
func (s *Store) LevelDelay(level int32) time.Duration {
	return time.Duration(delayOf(s.levels.spans.last(), level)) * time.Millisecond
}
