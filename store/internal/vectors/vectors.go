// Package vectors gives tests the store directories that real RocketMQ brokers wrote (store/testdata/vectors).
package vectors

import (
	"archive/tar"
	"compress/gzip"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"strings"
)

// Names are the directories.
var Names = []string{"4.9.7-stopped", "4.9.7-killed", "5.3.3-stopped", "5.3.3-killed", "5.3.3-lmq"}

// PopNames are directories with messages that a pop consumer had not acknowledged; only Popped is expected of them.
var PopNames = []string{"5.3.3-pop-stopped", "5.3.3-pop-killed"}

// SegmentBytes is the size of a commit log file in them.
const SegmentBytes = 131072

// Expected is what a directory contains and what the real broker answered.
type Expected struct {
	Version  string    `json:"version"`
	LogEnd   int64     `json:"log_end"`
	Segments []Segment `json:"commitlog_files"`
	Topics   []struct {
		Topic    string `json:"topic"`
		Queue    int32  `json:"queue"`
		Min      int64  `json:"min"`
		Max      int64  `json:"max"`
		Messages int    `json:"messages"`
	} `json:"topics"`
	SearchByTime []struct {
		Topic     string `json:"topic"`
		Queue     int32  `json:"queue"`
		Timestamp int64  `json:"timestamp"`
		Lower     int64  `json:"lower"`
		Upper     int64  `json:"upper"`
	} `json:"search_by_time"`
	GroupOffsets map[string]map[string]int64 `json:"group_offsets"`
	ViewByOffset []struct {
		Position int64  `json:"phys_offset"`
		SHA256   string `json:"body_sha256"`
	} `json:"view_by_offset"`
	Messages []Message `json:"messages"`

	Checkpoint struct {
		LogTime   int64 `json:"physic_ms"`
		QueueTime int64 `json:"logics_ms"`
		IndexTime int64 `json:"index_ms"`
		Flushed   int64 `json:"master_flushed"`
		Confirm   int64 `json:"confirm"`
	} `json:"checkpoint"`
	Halves []struct {
		QueueOffset   int64  `json:"queue_offset"`
		Position      int64  `json:"phys_offset"`
		UniqKey       string `json:"uniq_key"`
		Keys          string `json:"keys"`
		RealTopic     string `json:"real_topic"`
		RealQueue     string `json:"real_queue"`
		ProducerGroup string `json:"producer_group"`
		CommittedAt   *int64 `json:"committed_at"`
	} `json:"pending_halves"`
	Delays []struct {
		Level       int    `json:"level"`
		QueueOffset int64  `json:"queue_offset"`
		Position    int64  `json:"phys_offset"`
		RealTopic   string `json:"real_topic"`
		RealQueue   string `json:"real_queue"`
	} `json:"pending_delays"`
	DelayOffsets map[int]int64 `json:"delay_offsets"`
	Timer        *struct {
		Slots []struct {
			Slot  int64 `json:"slot"`
			Time  int64 `json:"time"`
			First int64 `json:"first"`
			Last  int64 `json:"last"`
			Count int32 `json:"num"`
			Magic int32 `json:"magic"`
		} `json:"slots"`
		Log []struct {
			Position  int64 `json:"pos"`
			Previous  int64 `json:"prev"`
			Magic     int32 `json:"magic"`
			WriteTime int64 `json:"write_ms"`
			Delay     int32 `json:"delay_ms"`
			Message   int64 `json:"phys_offset"`
			Size      int32 `json:"size"`
			TopicHash int32 `json:"topic_hash"`
		} `json:"log"`
	} `json:"timer"`
	ConsumeQueues map[string]struct {
		Entries int64 `json:"entries"`
	} `json:"consumequeues"`
	IndexFiles []struct {
		File      string `json:"file"`
		BeginTime int64  `json:"begin_ms"`
		EndTime   int64  `json:"end_ms"`
		Begin     int64  `json:"begin_phy"`
		End       int64  `json:"end_phy"`
		SlotsUsed int32  `json:"slots_used"`
		Count     int32  `json:"count"`
	} `json:"index_files"`
	QueryByKey []struct {
		Topic     string  `json:"topic"`
		Key       string  `json:"key"`
		Positions []int64 `json:"phys_offsets"`
	} `json:"query_by_key"`
	ConfigFiles map[string]json.RawMessage `json:"config_files"`

	Popped []Popped `json:"popped"`
}

// Slots is how many slots a key index file in them has.
const Slots = 1000

// Popped is a message that a pop consumer had not acknowledged.
type Popped struct {
	Topic          string `json:"topic"`
	Queue          int32  `json:"queue"`
	Offset         int64  `json:"offset"`
	Group          string `json:"group"`
	PopTime        int64  `json:"pop_ms"`
	Due            int64  `json:"due_ms"`
	Body           string `json:"body"`
	ReconsumeTimes int32  `json:"reconsume_times"` // before it comes again
}

// Segment is one commit log file.
type Segment struct {
	File       string `json:"file"`
	Records    int    `json:"records"`
	End        int64  `json:"end"` // where the last record or the padding ends
	PaddingAt  *int64 `json:"padding_at"`
	PaddingLen int64  `json:"padding_len"`
}

// Message is one record.
type Message struct {
	Topic            string            `json:"topic"`
	Queue            int32             `json:"queue"`
	QueueOffset      int64             `json:"queue_offset"`
	Position         int64             `json:"phys_offset"`
	Size             int32             `json:"store_size"`
	SysFlag          int32             `json:"sys_flag"`
	Flag             int32             `json:"flag"`
	BornTime         int64             `json:"born_ms"`
	BornHost         string            `json:"born_host"`
	StoreTime        int64             `json:"store_ms"`
	StoreHost        string            `json:"store_host"`
	ReconsumeTimes   int32             `json:"reconsume_times"`
	PreparedOffset   int64             `json:"prepared_tx_offset"`
	OffsetID         string            `json:"offset_msg_id"`
	Tags             string            `json:"tags"`
	Keys             string            `json:"keys"`
	Properties       map[string]string `json:"properties"`
	BodyLen          int               `json:"body_len"`
	BodySHA256       string            `json:"body_sha256"`
	StoredBodyLen    int               `json:"stored_body_len"`
	StoredBodySHA256 string            `json:"stored_body_sha256"`
	TagsCode         int64             `json:"cq_tags_code"`
	Ext              *Extension        `json:"ext"`
	ReadFrom         json.RawMessage   `json:"read_from"` // only in 5.3.3-lmq: this copy was read through a light queue
}

// Extension is the extension unit of a queue entry.
type Extension struct {
	Address   int64  `json:"addr"`
	TagsCode  int64  `json:"tags_code"`
	StoreTime int64  `json:"store_ms"`
	Bitmap    string `json:"bitmap"`
}

// Load unpacks a directory: paths relative to the store's root, with their content.
func Load(name string) (map[string][]byte, *Expected, error) {
	_, self, _, _ := runtime.Caller(0)
	dir := filepath.Join(filepath.Dir(self), "..", "..", "testdata", "vectors")
	files, err := unpack(filepath.Join(dir, name+".tar.gz"))
	if err != nil {
		return nil, nil, err
	}
	f, err := os.Open(filepath.Join(dir, name+".expected.json.gz"))
	if err != nil {
		return nil, nil, err
	}
	defer f.Close()
	z, err := gzip.NewReader(f)
	if err != nil {
		return nil, nil, err
	}
	want := new(Expected)
	if err := json.NewDecoder(z).Decode(want); err != nil {
		return nil, nil, fmt.Errorf("%s: %w", name, err)
	}
	return files, want, nil
}

func unpack(name string) (map[string][]byte, error) {
	f, err := os.Open(name)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	z, err := gzip.NewReader(f)
	if err != nil {
		return nil, err
	}
	files := make(map[string][]byte)
	for r := tar.NewReader(z); ; {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			return files, nil
		}
		if err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
		if h.Typeflag == tar.TypeDir {
			continue
		}
		_, path, _ := strings.Cut(filepath.ToSlash(filepath.Clean(h.Name)), "/")
		if files[path], err = io.ReadAll(r); err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
	}
}
