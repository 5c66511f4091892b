package broker

import (
	"encoding/json"
	"maps"
	"strings"
	"testing"

	"github.com/fusionmq/fusionmq/metaq/remoting"
	"github.com/fusionmq/fusionmq/store/meta"
)

// Codes and the beginnings of remarks are what a RocketMQ 5.3.3 broker answered to the same texts.
func TestAttributesAreCheckedAsRocketMQDoes(t *testing.T) {
	e := start(t)
	c := e.dial()
	const ok = "ok"
	was := "+message.type=NORMAL,+reserve.time=7"
	for _, tc := range []struct {
		name, made string // how the topic was made; "-": it is not there
		give, want string // "ok", or the beginning of the remark
		code       int32
		left       map[string]string
	}{
		{"a type", "-", "+message.type=FIFO", ok, 0, map[string]string{"message.type": "FIFO"}},
		{"a type that is none", "-", "+message.type=banana", "value is not in set: [UNSPECIFIED, TRANSACTION, FIFO, MIXED, DELAY, NORMAL]; attribute message.type", 1, nil},
		{"another case", "-", "+message.type=normal", "value is not in set: [", 1, nil},
		{"mixed", "-", "+message.type=MIXED", "MIXED message type is not supported.", 29, nil},
		{"no value", "-", "+message.type=", "attribute message.type has no value", 1, nil},
		{"no sign to set", "-", "message.type=NORMAL", "add/alter attribute format is wrong: message.type", 1, nil},
		{"no value and no sign", "-", "foo", "delete attribute format is wrong: foo", 1, nil},
		{"plus without a value", "-", "+message.type", "delete attribute format is wrong: +message.type", 1, nil},
		{"a space in front", "-", " +message.type=NORMAL", "kv string format wrong.", 1, nil},
		{"no key", "-", "+=x", "kv string format wrong.", 1, nil},
		{"two signs", "-", "++message.type=NORMAL", "kv string format wrong.", 1, nil},
		{"only an equals sign", "-", "=", "add/alter attribute format is wrong: ", 1, nil},
		{"a comma", "-", ",", ok, 0, nil},
		{"a comma at the end", "-", "+message.type=NORMAL,", ok, 0, map[string]string{"message.type": "NORMAL"}},
		{"two commas", "-", "+message.type=NORMAL,,+reserve.time=7", "delete attribute format is wrong: ", 1, nil},
		{"less at creation", "-", "-message.type", "only add attribute is supported while creating topic. key: message.type", 1, nil},
		{"twice", "-", "+message.type=NORMAL,+message.type=FIFO", "key duplication: +message.type", 1, nil},
		{"queue type", "-", "+queue.type=BatchCQ", ok, 0, map[string]string{"queue.type": "BatchCQ"}},
		{"bad queue type", "-", "+queue.type=x", "value is not in set: [SimpleCQ, BatchCQ]", 1, nil},
		{"cleanup policy", "-", "+cleanup.policy=COMPACTION", ok, 0, map[string]string{"cleanup.policy": "COMPACTION"}},
		{"bad cleanup policy", "-", "+cleanup.policy=delete", "value is not in set: [DELETE, COMPACTION]", 1, nil},
		{"no reserve time", "-", "+reserve.time=-1", ok, 0, map[string]string{"reserve.time": "-1"}},
		{"small reserve time", "-", "+reserve.time=-2", "value is not in range(-1, 9223372036854775807)", 1, nil},
		{"bad reserve time", "-", "+reserve.time=x", `For input string: "x"`, 1, nil},
		{"unknown", "-", "+foo=bar", "unsupported key: foo", 1, nil},
		{"ours", "-", "+fusion.durability=sync", ok, 0, map[string]string{"fusion.durability": "sync"}},
		{"a bad one of ours", "-", "+fusion.durability=disk", `attribute fusion.durability "disk" is not valid: want memory, async or sync`, 29, nil},
		{"like ours", "-", "+fusion.nothing=1", "unsupported key: fusion.nothing", 1, nil},

		{"none", was, "", ok, 0, map[string]string{"message.type": "NORMAL", "reserve.time": "7"}},
		{"one less, one other", was, "-reserve.time,+message.type=DELAY", ok, 0, map[string]string{"message.type": "DELAY"}},
		{"one less that is not there", was, "-foo", "attempt to delete a nonexistent key: foo", 1, nil},
		{"what is less is looked at first", was, "+message.type=banana,-foo", "attempt to delete a nonexistent key: foo", 1, nil},
		{"set and taken away", was, "+message.type=FIFO,-message.type", "alter duplication key. key: message.type", 1, nil},
		{"an unchangeable one", was, "+queue.type=SimpleCQ", "attempt to update an unchangeable attribute. key: queue.type", 1, nil},
		{"an unchangeable one less", "+queue.type=SimpleCQ", "-queue.type", "attempt to update an unchangeable attribute. key: queue.type", 1, nil},
		{"a value with minus", was, "-reserve.time=3", "add/alter attribute format is wrong: -reserve.time", 1, nil},
		{"one good, one bad", was, "+reserve.time=8,+foo=1", "unsupported key: foo", 1, nil},
	} {
		t.Run(tc.name, func(t *testing.T) {
			name := "T" + strings.ReplaceAll(strings.ReplaceAll(tc.name, " ", "-"), ",", "")
			if tc.made != "-" {
				c.ok(remoting.ReqUpdateAndCreateTopic, nil, topicFields(name, "attributes", tc.made)...)
			}
			before := e.store.Topics().Get(name)
			r := c.call(remoting.ReqUpdateAndCreateTopic, nil, topicFields(name, "attributes", tc.give)...)
			if r.Code != tc.code || tc.want != ok && !strings.HasPrefix(r.Remark, tc.want) {
				t.Errorf("%q: code %d, %q, want %d, %q", tc.give, r.Code, r.Remark, tc.code, tc.want)
			}
			after := e.store.Topics().Get(name)
			if tc.want != ok {
				if after != before {
					t.Errorf("%q was refused and left %+v", tc.give, after)
				}
			} else if after == nil || !maps.Equal(after.Attributes, tc.left) {
				t.Errorf("%q left %+v, want the attributes %q", tc.give, after, tc.left)
			}
		})
	}

	// What a broker of another version has left in the table stays, and can be taken away.
	odd := meta.DefaultTopic("odd")
	if err := json.Unmarshal([]byte(`{"attributes":{"of.another":"1","message.type":"banana"}}`), &odd); err != nil {
		t.Fatal(err)
	}
	if err := e.store.Topics().Put(odd); err != nil {
		t.Fatal(err)
	}
	c.ok(remoting.ReqUpdateAndCreateTopic, nil, topicFields("odd", "perm", "4")...)
	if got := e.store.Topics().Get("odd"); got.Perm != 4 || len(got.Attributes) != 2 {
		t.Errorf("%+v", got)
	}
	c.ok(remoting.ReqUpdateAndCreateTopic, nil, topicFields("odd", "attributes", "-of.another,+message.type=NORMAL")...)
	if got := e.store.Topics().Get("odd"); len(got.Attributes) != 1 || got.Attributes["message.type"] != "NORMAL" {
		t.Errorf("%+v", got)
	}
}
