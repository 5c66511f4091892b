package queue

import (
	"fmt"
	"path/filepath"

	"github.com/fusionmq/fusionmq/store/vfs"
)

// FileInfo is what an index file says of itself.
type FileInfo struct {
	Start, End int64 // the part of the log that it speaks for
	Entries    int64
}

// Verify reads an index file from its first to its last byte and changes nothing: every checksum, and that the tables and the
// entries are in the order that look-ups count on. What is wrong with the content is a *CorruptError.
func Verify(fsys vfs.FS, name string) (FileInfo, error) {
	s, err := openSpan(fsys, name)
	if err != nil {
		return FileInfo{}, err
	}
	defer s.release()
	info := FileInfo{Start: s.start, End: s.end, Entries: int64(s.header.entries)}
	if want := fmt.Sprintf("%0*d%s", nameDigits, s.start, suffix); filepath.Base(name) != want {
		return info, &CorruptError{name, "its name should be " + want}
	}
	if _, err := s.directory(); err != nil {
		return info, err
	}
	at := uint32(0) // entries that queues have claimed
	queues := 0
	last := ""
	for i := range int(s.header.topics) {
		topic, first, n := s.topicAt(i)
		if i > 0 && string(topic) <= last || first != queues {
			return info, &CorruptError{name, fmt.Sprintf("topic %d is out of order", i)}
		}
		last = string(topic)
		id := int32(-1)
		for j := first; j < first+n; j++ {
			p := s.queueAt(j)
			if p.id <= id || p.at != at {
				return info, &CorruptError{name, fmt.Sprintf("queue %d is out of order", j)}
			}
			id = p.id
			at += p.count
			if err := s.verifyPart(p); err != nil {
				return info, err
			}
		}
		queues += n
	}
	if queues != int(s.header.queues) || at != s.header.entries {
		return info, &CorruptError{name, fmt.Sprintf("topics have %d queues with %d entries, the file has %d and %d", queues, at, s.header.queues, s.header.entries)}
	}
	return info, nil
}

func (s *span) verifyPart(p part) error {
	var es [pageEntries]Entry
	address := s.start - 1
	for done := 0; done < int(p.count); {
		dst := es[:min(len(es), int(p.count)-done)]
		if err := s.read(int(p.at)+done, dst); err != nil {
			return err
		}
		for i := range dst {
			if dst[i].Address <= address || dst[i].Address >= s.end {
				return &CorruptError{s.name, fmt.Sprintf("entry %d is out of order", int(p.at)+done+i)}
			}
			address = dst[i].Address
		}
		done += len(dst)
	}
	if p.count > 0 && address != p.last {
		return &CorruptError{s.name, fmt.Sprintf("newest entry of a queue is at %d, its table says %d", address, p.last)}
	}
	return nil
}
