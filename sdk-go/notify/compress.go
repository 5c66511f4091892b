package notify

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"sync"

	"github.com/klauspost/compress/zlib"
	"github.com/klauspost/compress/zstd"
	"github.com/pierrec/lz4/v4"

	"github.com/fusionmq/fusionmq/notify/wire"
)

// deflater compresses bodies of one publisher; its writers are reused, as a fresh one costs a megabyte.
type deflater struct {
	min   int
	level int
	pool  sync.Pool // of *zlib.Writer
}

// compress returns the body to send and whether it is compressed; it may be in buf's room.
func (d *deflater) compress(buf *bytes.Buffer, body []byte) ([]byte, bool) {
	if d.min == 0 || len(body) < d.min {
		return body, false
	}
	buf.Reset()
	w, _ := d.pool.Get().(*zlib.Writer)
	if w == nil {
		w, _ = zlib.NewWriterLevel(buf, d.level) // the option has checked the level
	} else {
		w.Reset(buf)
	}
	_, err := w.Write(body)
	if err = errors.Join(err, w.Close()); err != nil {
		return body, false // a bytes.Buffer does not fail
	}
	d.pool.Put(w)
	if buf.Len() >= len(body) {
		return body, false
	}
	return buf.Bytes(), true
}

// inflater decompresses bodies; its readers are reused.
type inflater struct {
	max  int64
	zlib sync.Pool // of io.ReadCloser that are zlib.Resetter
	lz4  sync.Pool // of *lz4.Reader
	zstd sync.Pool // of *zstd.Decoder
}

// decompress inflates a body of the named compression; none named is zlib. What would grow past max is ErrBodyTooLarge.
func (f *inflater) decompress(body []byte, compression string) ([]byte, error) {
	src := bytes.NewReader(body)
	switch compression {
	case "", wire.CompressionZlib:
		r, _ := f.zlib.Get().(io.ReadCloser)
		var err error
		if r == nil {
			r, err = zlib.NewReader(src)
		} else {
			err = r.(zlib.Resetter).Reset(src, nil)
		}
		if err != nil {
			return nil, fmt.Errorf("notify: zlib body: %w", err)
		}
		out, err := f.read(r, len(body))
		if err == nil {
			f.zlib.Put(r)
		}
		return out, err
	case wire.CompressionLZ4:
		r, _ := f.lz4.Get().(*lz4.Reader)
		if r == nil {
			r = lz4.NewReader(src)
		} else {
			r.Reset(src)
		}
		out, err := f.read(r, len(body))
		if err == nil {
			f.lz4.Put(r)
		}
		return out, err
	case wire.CompressionZstd:
		r, _ := f.zstd.Get().(*zstd.Decoder)
		var err error
		if r == nil {
			// One goroutine-free decoder; the window bounds its memory before any output.
			r, err = zstd.NewReader(src, zstd.WithDecoderConcurrency(1), zstd.WithDecoderLowmem(true), zstd.WithDecoderMaxWindow(8<<20))
		} else {
			err = r.Reset(src)
		}
		if err != nil {
			return nil, fmt.Errorf("notify: zstd body: %w", err)
		}
		out, err := f.read(r, len(body))
		if err == nil {
			f.zstd.Put(r)
		}
		return out, err
	}
	return nil, fmt.Errorf("notify: unknown compression %s", wire.Quote(compression))
}

func (f *inflater) read(r io.Reader, compressed int) ([]byte, error) {
	var out bytes.Buffer
	out.Grow(int(min(int64(compressed)*3, f.max)))
	n, err := out.ReadFrom(io.LimitReader(r, f.max+1))
	if err != nil {
		return nil, fmt.Errorf("notify: compressed body: %w", err)
	}
	if n > f.max {
		return nil, fmt.Errorf("%w: more than %d bytes", ErrBodyTooLarge, f.max)
	}
	return out.Bytes(), nil
}
