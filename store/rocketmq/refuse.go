package rocketmq

import (
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"slices"
	"strings"

	"github.com/fusionmq/fusionmq/store/meta"
	"github.com/fusionmq/fusionmq/store/vfs"
)

// Obstacle is why a directory of an Apache broker cannot be taken over.
type Obstacle struct {
	File string // that shows it
	What string
	Todo string // what an operator can do
}

func (o *Obstacle) Error() string {
	return fmt.Sprintf("a RocketMQ directory like this cannot be taken over: %s (%s). %s", o.What, o.File, o.Todo)
}

const (
	todoFileStore = "Move to a broker with the file store first (storeType=default), for example by consuming everything from this one, and take that one's directory."
	todoTopic     = "Consume it, delete the topic with that broker, and start again; its messages can be sent to an ordinary topic."
)

// Obstacles looks for what a broker keeps in forms that are not read here: a store in RocksDB, of DLedger or in tiers, batch queues and compacted
// topics. What would be left out silently must not be. It reads the names of files and config/topics.json.
func Obstacles(fsys vfs.FS, dir string) ([]Obstacle, error) {
	var all []Obstacle
	add := func(file, what, todo string) { all = append(all, Obstacle{file, what, todo}) }
	at := func(parts ...string) string { return filepath.Join(append([]string{dir}, parts...)...) }
	names, err := list(fsys, dir)
	if err != nil {
		return nil, err
	}
	for _, name := range names {
		d, ok := strings.CutSuffix(name, "/")
		switch {
		case !ok || strings.HasPrefix(d, "index"): // the key index is made anew, wherever it was
		case strings.HasPrefix(d, "dledger-"):
			add(at(d), "its log is DLedger's, whose files have another form", todoFileStore)
		case d == ConfigDir:
			files, err := list(fsys, at(d))
			if err != nil {
				return nil, err
			}
			for _, f := range files {
				if strings.HasSuffix(f, "/") && rocksDB(fsys, at(d, f)) {
					add(at(d, f), "topics, groups or offsets are in RocksDB", "Let the broker keep them in config/*.json, which mqadmin rocksDBConfigToJson can write, and remove the directory.")
				}
			}
			if slices.Contains(files, "tieredStoreMetadata.json") {
				add(at(d, "tieredStoreMetadata.json"), "older messages are in a tiered store", "Consume what only the tiered store has, and remove the file when nothing of it is needed.")
			}
		case rocksDB(fsys, at(d)):
			if d == "kvStore" {
				add(at(d), "what pop consumers have not acknowledged is in RocksDB (popConsumerKVServiceEnable)", "Let the consumers finish, stop the broker, and remove the directory when nothing is open.")
			} else {
				add(at(d), "its queues are in RocksDB", todoFileStore)
			}
		}
	}
	topics, err := oddTopics(fsys, at(ConfigDir, meta.TopicTable))
	if err != nil {
		return nil, err
	}
	for _, t := range topics {
		add(at(ConfigDir, meta.TopicTable), t, todoTopic)
	}
	return all, nil
}

// list is what is in a directory, nothing when there is none.
func list(fsys vfs.FS, dir string) ([]string, error) {
	names, err := fsys.List(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	return names, err
}

// rocksDB tells whether a directory is a RocksDB.
func rocksDB(fsys vfs.FS, dir string) bool {
	names, err := fsys.List(dir)
	return err == nil && slices.Contains(names, "CURRENT")
}

// oddTopics are the topics whose messages are not in ordinary queues. A file that cannot be used is for who reads the tables to tell.
func oddTopics(fsys vfs.FS, file string) ([]string, error) {
	var doc struct {
		Topics map[string]struct {
			Attributes map[string]string `json:"attributes"`
		} `json:"topicConfigTable"`
	}
	err := readConfig(fsys, file, func(b []byte) error { return meta.UnmarshalLenient(b, &doc) })
	if err != nil {
		return nil, err
	}
	var all []string
	for name, t := range doc.Topics {
		switch {
		case t.Attributes["queue.type"] == "BatchCQ":
			all = append(all, fmt.Sprintf("topic %q has batch queues (queue.type=BatchCQ)", name))
		case t.Attributes["cleanup.policy"] == "COMPACTION":
			all = append(all, fmt.Sprintf("topic %q is compacted (cleanup.policy=COMPACTION)", name))
		}
	}
	slices.Sort(all)
	return all, nil
}
