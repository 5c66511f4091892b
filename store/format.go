package store

import (
	"errors"
	"fmt"
	"io/fs"
	"math"
	"strconv"
	"strings"

	"github.com/fusionmq/fusionmq/store/log"
	"github.com/fusionmq/fusionmq/store/rocketmq"
	"github.com/fusionmq/fusionmq/store/vfs"
)

// formatVersion is what this program writes. It goes up when an older program would misread the directory.
const formatVersion = 1

// format is the content of commitlog/fusionmq: what was decided when the directory was made.
type format struct {
	version      int
	segmentBytes int64
	adopt        bool  // the directory is another broker's, and what waits in it has not been taken over yet
	foreign      int64 // the log below it is another broker's
}

func (f format) encode() []byte {
	b := fmt.Appendf(nil, "format %d\nsegment-bytes %d\n", f.version, f.segmentBytes)
	if f.foreign > 0 {
		b = fmt.Appendf(b, "foreign-end %d\n", f.foreign)
	}
	if f.adopt {
		b = append(b, "adopt 1\n"...)
	}
	return b
}

func decodeFormat(b []byte) (format, error) {
	var f format
	for line := range strings.Lines(string(b)) {
		key, value, _ := strings.Cut(strings.TrimSuffix(line, "\n"), " ")
		n, err := strconv.ParseInt(value, 10, 63)
		if err != nil || n < 1 {
			return f, fmt.Errorf("line %q: want a name and a number", line)
		}
		switch key {
		case "format":
			f.version = int(n)
		case "segment-bytes":
			f.segmentBytes = n
		case "foreign-end":
			f.foreign = n
		case "adopt":
			f.adopt = true
		}
		// Other keys are of a later version; whether they can be passed over, its number says.
	}
	if f.version == 0 {
		return f, errors.New("has no line with the format")
	}
	if f.version <= formatVersion && f.segmentBytes == 0 {
		return f, errors.New("has no line with segment-bytes")
	}
	return f, nil
}

// checkFormat compares the directory with this program and the options and sets Options.SegmentBytes to what holds. A
// directory that is new or comes from RocketMQ has no mark yet; markFormat gives it one when it has proved usable.
func (s *Store) checkFormat() (marked bool, err error) {
	name := s.path(logDir, log.MarkerName)
	b, err := vfs.ReadFile(s.o.FS, name, 1<<16)
	if err == nil {
		f, err := decodeFormat(b)
		if err != nil {
			return false, fmt.Errorf("%s %w", name, err)
		}
		if f.version > formatVersion {
			return false, &FormatError{File: name, Have: f.version, Can: formatVersion}
		}
		s.adopting, s.foreign = f.adopt, f.foreign
		if f.adopt {
			s.foreign = math.MaxInt64
		}
		return true, s.fixSegmentBytes(f.segmentBytes)
	}
	if !errors.Is(err, fs.ErrNotExist) {
		return false, err
	}
	have, err := log.SegmentBytes(s.o.FS, s.path(logDir))
	if err != nil {
		return false, err
	}
	if err := s.checkForeign(have == 0); err != nil {
		return false, err
	}
	switch {
	case have != 0 && (have < minSegment || have > maxSegment || have%segmentStep != 0):
		return false, fmt.Errorf("%w: the files in %s are %d bytes long; RocketMQ's are a multiple of 4096 from 65536 to 1073741824. Remove what is no log, or give another directory",
			ErrNotLog, s.path(logDir), have)
	case have != 0:
		s.event(levelInfo, "store directory of an Apache broker is taken over", "segment_bytes", have)
		s.adopting, s.foreign = true, math.MaxInt64
		return false, s.fixSegmentBytes(have)
	case s.o.SegmentBytes == 0:
		s.o.SegmentBytes = defaultSegment
	}
	return false, nil
}

// checkForeign refuses a directory of an Apache broker that has what would be left out.
func (s *Store) checkForeign(noLog bool) error {
	obstacles, err := rocketmq.Obstacles(s.o.FS, s.o.Dir)
	if err != nil {
		return err
	}
	if queues, err := s.o.FS.List(s.path(rocketmq.QueueDir)); err == nil && noLog && len(queues) > 0 {
		obstacles = append(obstacles, rocketmq.Obstacle{
			File: s.path(rocketmq.QueueDir), What: "it has queues and no log, which the broker keeps in another place (storePathCommitLog)",
			Todo: "Move the files of the log to " + s.path(logDir) + ".",
		})
	}
	var all error
	for i := range obstacles {
		all = errors.Join(all, &obstacles[i])
	}
	if all != nil {
		return fmt.Errorf("%w: %w", ErrForeign, all)
	}
	return nil
}

func (s *Store) markFormat() error {
	f := format{version: formatVersion, segmentBytes: s.o.SegmentBytes, adopt: s.adopting}
	if !s.adopting {
		f.foreign = s.foreign
	}
	return vfs.WriteFile(s.o.FS, s.path(logDir, log.MarkerName), f.encode(), "")
}

func (s *Store) fixSegmentBytes(have int64) error {
	if s.o.SegmentBytes != 0 && s.o.SegmentBytes != have {
		return &ConfigError{Option: "SegmentBytes", Have: have, Want: s.o.SegmentBytes}
	}
	s.o.SegmentBytes = have
	return nil
}
