package store_test

import (
	"context"
	"errors"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/fusionmq/fusionmq/store"
	"github.com/fusionmq/fusionmq/store/check"
	"github.com/fusionmq/fusionmq/store/log"
	"github.com/fusionmq/fusionmq/store/rocketmq"
)

// What a directory of an Apache broker has in a form that is not read here would be left out silently: it is refused before anything is
// changed, with what it is and what can be done, and a check says the same.
func TestADirectoryWithWhatIsNotReadIsRefused(t *testing.T) {
	topics := func(attribute, value string) string {
		return `{"topicConfigTable":{"Fine":{"topicName":"Fine","attributes":{"+queue.type":"SimpleCQ"}},"Odd":{"topicName":"Odd","attributes":{"` + attribute + `":"` + value + `"}}}}`
	}
	for name, c := range map[string]struct{ file, content, want string }{
		"batch queues":          {"config/topics.json", topics("queue.type", "BatchCQ"), `topic "Odd" has batch queues`},
		"batch queues, backup":  {"config/topics.json.bak", topics("queue.type", "BatchCQ"), `topic "Odd" has batch queues`},
		"compacted":             {"config/topics.json", topics("cleanup.policy", "COMPACTION"), `topic "Odd" is compacted`},
		"queues in RocksDB":     {"consumequeue/CURRENT", "MANIFEST-000004\n", "its queues are in RocksDB"},
		"tables in RocksDB":     {"config/topics/CURRENT", "MANIFEST-000004\n", "topics, groups or offsets are in RocksDB"},
		"pop records elsewhere": {"kvStore/CURRENT", "MANIFEST-000004\n", "popConsumerKVServiceEnable"},
		"tiered":                {"config/tieredStoreMetadata.json", "{}", "tiered store"},
		"DLedger":               {"dledger-n0/data/00000000000000000000", "x", "DLedger"},
		"log elsewhere":         {"", "", "storePathCommitLog"},
	} {
		t.Run(name, func(t *testing.T) {
			m, _ := brokerDirectory(t, "5.3.3-stopped")
			switch {
			case c.file == "":
				if err := removeAll(m, "/s/commitlog"); err != nil {
					t.Fatal(err)
				}
			default:
				if main, ok := strings.CutSuffix(c.file, ".bak"); ok {
					put(t, m, "/s/"+main, []byte("{"))
				}
				put(t, m, "/s/"+c.file, []byte(c.content))
			}
			_, err := store.Open(store.Options{Dir: "/s", FS: m})
			var o *rocketmq.Obstacle
			if !errors.Is(err, store.ErrForeign) || !errors.As(err, &o) || o.Todo == "" || !strings.Contains(err.Error(), c.want) {
				t.Fatalf("got %v", err)
			}
			if _, err := m.Stat("/s/commitlog/" + log.MarkerName); err == nil {
				t.Error("the directory is marked")
			}
			if _, err := m.Stat("/s/abort"); err == nil {
				t.Error("the directory looks open")
			}
			r, err := check.Run(context.Background(), check.Options{Dir: "/s", FS: m})
			if c.file != "" && (err != nil || r.Worst() != check.Damage || !slices.ContainsFunc(r.Findings, func(f check.Finding) bool { return strings.Contains(f.What, c.want) })) {
				t.Errorf("check: %+v, %v", r, err)
			}
		})
	}
	// What a broker has beside these forms by default is no obstacle.
	m, _ := brokerDirectory(t, "5.3.3-stopped")
	for n, b := range maps.All(map[string]string{"compaction/position-checkpoint": "{}", "indexRocksDB/CURRENT": "x", "config/consumerFilter.json": "{}"}) {
		put(t, m, "/s/"+n, []byte(b))
	}
	s, err := tryOpen(t, store.Options{Dir: "/s", FS: m})
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
}
