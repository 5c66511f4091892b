package rocketmq

import (
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/fusionmq/fusionmq/store/meta"
	"github.com/fusionmq/fusionmq/store/vfs"
)

// Progress is how far a broker had come in the topics that it reads itself.
type Progress struct {
	Half   int64            // offset of HalfTopic: what is below was decided
	Levels map[int]int64    // offsets of ScheduleTopic by level: what is below was delivered
	Timer  TimerCheckpoint  // zero without a timer
	Wheel  bool             // the timer's own files are there; otherwise nothing waits that is below Timer.QueueOffset
	Light  map[string]int64 // committed offsets of light queues, by queue@group

	// Offsets are committed offsets, by topic@group and queue, of a broker that has light queues on, which keeps all in another file.
	Offsets map[string]map[int32]int64

	// Revive has offsets of revive topics by topic and queue: what is at or below was judged.
	Revive map[string]map[int32]int64
}

const maxConfigBytes = 1 << 28

// LightOffsets is the file in config/ in which a broker that has light queues on keeps the offsets of all queues.
const LightOffsets = "lmqConsumerOffset.json"

// ReadProgress reads it from the configuration of a store directory. What is missing is zero, which repeats and never loses: a
// broker does the same. A file that cannot be used is replaced by its backup.
func ReadProgress(fsys vfs.FS, dir string) (Progress, error) {
	p := Progress{Levels: map[int]int64{}, Light: map[string]int64{}, Revive: map[string]map[int32]int64{}}
	config := filepath.Join(dir, ConfigDir)
	err := readConfig(fsys, filepath.Join(config, "delayOffset.json"), func(b []byte) (err error) {
		p.Levels, err = DecodeDelayOffsets(b)
		return err
	})
	if err != nil {
		return p, err
	}
	var last map[string]map[int32]int64
	offsets := func(b []byte) error {
		all, light, err := DecodeOffsets(b)
		if err != nil {
			return err
		}
		last = all
		p.Half = max(p.Half, all[HalfTopic+"@"+TransactionGroup][0])
		for k, queues := range all {
			if topic, ok := strings.CutSuffix(k, "@"+ReviveGroup); ok && strings.HasPrefix(topic, RevivePrefix) {
				for id, n := range queues {
					if have, ok := p.Revive[topic][id]; !ok || have < n {
						if p.Revive[topic] == nil {
							p.Revive[topic] = map[int32]int64{}
						}
						p.Revive[topic][id] = n
					}
				}
			}
		}
		for k, n := range light {
			p.Light[k] = n
		}
		return nil
	}
	for _, name := range []string{meta.OffsetTable, LightOffsets} {
		if err := readConfig(fsys, filepath.Join(config, name), offsets); err != nil {
			return p, err
		}
		if name == LightOffsets {
			p.Offsets = last
		}
		last = nil
	}
	_, err = fsys.Stat(filepath.Join(dir, WheelFile))
	p.Wheel = err == nil
	if errors.Is(err, fs.ErrNotExist) {
		var names []string
		names, err = fsys.List(filepath.Join(dir, TimerLogDir))
		p.Wheel = len(names) > 0
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return p, err
	}
	b, err := vfs.ReadFile(fsys, filepath.Join(config, "timercheck"), maxConfigBytes)
	if err == nil {
		p.Timer, _ = DecodeTimerCheckpoint(b)
	} else if !errors.Is(err, fs.ErrNotExist) {
		return p, err
	}
	return p, nil
}

func readConfig(fsys vfs.FS, name string, use func([]byte) error) error {
	for _, suffix := range []string{"", ".bak"} {
		b, err := vfs.ReadFile(fsys, name+suffix, maxConfigBytes)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return err
		}
		if use(b) == nil {
			return nil
		}
	}
	return nil
}

// DecodeDelayOffsets reads delayOffset.json: offsets by level.
func DecodeDelayOffsets(b []byte) (map[int]int64, error) {
	var doc struct {
		OffsetTable map[string]int64 `json:"offsetTable"`
	}
	if err := meta.UnmarshalLenient(b, &doc); err != nil {
		return nil, fmt.Errorf("delayOffset.json: %w", err)
	}
	levels := map[int]int64{}
	for k, n := range doc.OffsetTable {
		level, err := strconv.Atoi(k)
		if err != nil || level < 1 || level > meta.MaxQueues || n < 0 {
			return nil, fmt.Errorf("delayOffset.json: level %q has offset %d", k, n)
		}
		levels[level] = n
	}
	return levels, nil
}

// DecodeOffsets reads consumerOffset.json or lmqConsumerOffset.json: offsets by topic@group and queue, and those of light queues by queue@group.
func DecodeOffsets(b []byte) (offsets map[string]map[int32]int64, light map[string]int64, err error) {
	var doc struct {
		OffsetTable map[string]map[int32]int64 `json:"offsetTable"`
		Light       map[string]int64           `json:"lmqOffsetTable"`
	}
	if err := meta.UnmarshalLenient(b, &doc); err != nil {
		return nil, nil, fmt.Errorf("consumer offsets: %w", err)
	}
	for k, n := range doc.Light {
		if !strings.HasPrefix(k, LightPrefix) || n < 0 {
			return nil, nil, fmt.Errorf("consumer offsets: light queue %q has offset %d", k, n)
		}
	}
	return doc.OffsetTable, doc.Light, nil
}
