package meta

import (
	"encoding/json"
	"testing"

	"github.com/fusionmq/fusionmq/store/internal/vectors"
	"github.com/fusionmq/fusionmq/store/vfs"
)

// FuzzFiles opens any content of the three files. What cannot be read is told and kept aside; what can be is the same after it was written once more.
func FuzzFiles(f *testing.F) {
	f.Add([]byte(`{"dataVersion":{"counter":3,"timestamp":5},"topicConfigTable":{"T":{"topicName":"T","readQueueNums":4,"writeQueueNums":4,"perm":6,"attributes":{"fusion.durability":"sync","fusion.until-consumed":"36h"}}}}`),
		[]byte(`{"dataVersion":{},"subscriptionGroupTable":{"g":{"groupName":"g","retryMaxTimes":16,"groupRetryPolicy":{"type":"CUSTOMIZED"}}}}`),
		[]byte(`{"offsetTable":{"T@g":{0:1,1:2}},"groupTopicMap":{}}`))
	f.Add([]byte(`{"topicConfigTable":{"T":{"perm":-1,"order":"x"}},"more":[1,{}]}`), []byte(`{"subscriptionGroupTable":{"g":null}}`), []byte(`{"offsetTable":{"T@g":{"0":-1,"70000":2}}}`))
	f.Add([]byte(`{"topicConfigTable":null}`), []byte(`{"subscriptionGroupTable":[]}`), []byte(`{"offsetTable":{"T":{}}}`))
	f.Add([]byte{}, []byte("\xef\xbb\xbf{}"), []byte(`{`))
	for _, name := range vectors.Names { // what real brokers wrote
		files, _, err := vectors.Load(name)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(files["config/topics.json"], files["config/subscriptionGroup.json"], files["config/consumerOffset.json"])
	}
	f.Fuzz(func(t *testing.T, topics, groups, offsets []byte) {
		mem := vfs.NewMem()
		for name, b := range map[string][]byte{"topics.json": topics, "subscriptionGroup.json": groups, "consumerOffset.json": offsets} {
			write(t, mem, name, string(b))
		}
		x := open(t, mem)
		ts, _ := x.topics.All()
		gs, _ := x.groups.All()
		all := x.offsets.All()
		for _, d := range x.damages {
			if d.Kept == "" {
				t.Errorf("%v is not kept", d)
			}
		}
		for _, o := range all {
			if o.Queue < 0 || o.Queue >= MaxQueues || o.Offset < 0 {
				t.Errorf("%+v", o)
			}
		}
		for _, c := range ts {
			_, _ = c.KeepUntilConsumed()
		}
		// A change writes the files anew.
		if err := x.topics.Put(DefaultTopic("new-topic")); err != nil {
			t.Fatal(err)
		}
		if err := x.groups.Put(DefaultGroup("new-group")); err != nil {
			t.Fatal(err)
		}
		x.offsets.Commit("new-group", "new-topic", 1, 7)
		if err := x.offsets.Persist(); err != nil {
			t.Fatal(err)
		}
		y := open(t, mem)
		if len(y.damages) > 0 {
			t.Errorf("written by us and damaged: %v", y.damages)
		}
		for _, c := range ts {
			if c.Name != "new-topic" {
				if was, is := asJSON(t, c), asJSON(t, y.topics.Get(c.Name)); was != is {
					t.Errorf("topic %q was read as %s, and again as %s", c.Name, was, is)
				}
			}
		}
		for _, c := range gs {
			if c.Name != "new-group" {
				if was, is := asJSON(t, c), asJSON(t, y.groups.Get(c.Name)); was != is {
					t.Errorf("group %q was read as %s, and again as %s", c.Name, was, is)
				}
			}
		}
		for _, o := range all {
			if got, ok := y.offsets.Get(o.Group, o.Topic, o.Queue); o.Group != "new-group" && (!ok || got != o.Offset) {
				t.Errorf("%+v is %d, %v", o, got, ok)
			}
		}
	})
}

// asJSON is a value as it is written.
func asJSON(t *testing.T, v any) string {
	t.Helper()
	b, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}
