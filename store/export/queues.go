package export

import (
	"fmt"
	"path/filepath"
	"strconv"

	"github.com/fusionmq/fusionmq/store/rocketmq"
	"github.com/fusionmq/fusionmq/store/vfs"
)

// Memory of entries that are not written yet: of one queue, and of all.
const (
	queueBuffer = 16 << 10
	allBuffers  = 64 << 20
)

// queueWriter writes consume queues. It keeps no file open, so that any number of queues can be written.
type queueWriter struct {
	fs    vfs.FS
	dir   string // consumequeue/
	size  int64  // of a file in bytes, a multiple of an entry
	all   map[queueID]*queueFiles
	held  int // bytes in buffers
	count int64
}

type queueID struct {
	topic string
	id    int32
}

type queueFiles struct {
	dir  string
	next int64 // offset of the next entry
	buf  []byte
	from int64 // byte position of buf[0] in the queue
	file int64 // base of the newest file; -1 before the first
}

// end is the offset of the next entry of a queue; 0 for one that has none.
func (w *queueWriter) end(topic string, id int32) int64 {
	if q := w.all[queueID{topic, id}]; q != nil {
		return q.next
	}
	return 0
}

// put writes the entry of an offset. Offsets that were left out before it have blank entries.
func (w *queueWriter) put(topic string, id int32, offset int64, e rocketmq.Entry) error {
	key := queueID{topic, id}
	q := w.all[key]
	if q == nil {
		q = &queueFiles{dir: filepath.Join(w.dir, topic, strconv.Itoa(int(id))), file: -1}
		if err := w.fs.MkdirAll(q.dir); err != nil {
			return err
		}
		q.from = offset * rocketmq.EntryBytes / w.size * w.size // from the beginning of the file that has it
		q.next = q.from / rocketmq.EntryBytes
		w.all[key] = q
	}
	if offset < q.next {
		return fmt.Errorf("queue %s/%d: entry %d after %d", topic, id, offset, q.next-1)
	}
	for q.next < offset {
		if err := w.add(q, rocketmq.BlankEntry()); err != nil {
			return err
		}
	}
	if e.Blank() {
		return nil
	}
	w.count++
	return w.add(q, e)
}

func (w *queueWriter) add(q *queueFiles, e rocketmq.Entry) error {
	q.buf = e.Append(q.buf)
	q.next++
	if w.held += rocketmq.EntryBytes; w.held > allBuffers {
		return w.flushAll()
	}
	if len(q.buf) >= queueBuffer {
		return w.flush(q)
	}
	return nil
}

func (w *queueWriter) flushAll() error {
	for _, q := range w.all {
		if err := w.flush(q); err != nil {
			return err
		}
	}
	return nil
}

// flush writes what is in the buffer of a queue and makes it durable.
func (w *queueWriter) flush(q *queueFiles) error {
	w.held -= len(q.buf)
	for len(q.buf) > 0 {
		base := q.from / w.size * w.size
		n := min(int64(len(q.buf)), base+w.size-q.from)
		name := filepath.Join(q.dir, fmt.Sprintf("%020d", base))
		open := w.fs.Open
		if base != q.file {
			open = w.fs.Create
		}
		f, err := open(name)
		if err != nil {
			return err
		}
		if base != q.file {
			err = f.Truncate(w.size)
			q.file = base
		}
		if err == nil {
			_, err = f.WriteAt(q.buf[:n], q.from-base)
		}
		if err == nil {
			err = f.Sync()
		}
		if e := f.Close(); err == nil {
			err = e
		}
		if err != nil {
			return err
		}
		q.buf = q.buf[:copy(q.buf, q.buf[n:])]
		q.from += n
	}
	return nil
}
