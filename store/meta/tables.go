package meta

import (
	"errors"
	"maps"
	"strings"
	"time"

	"github.com/fusionmq/fusionmq/store/vfs"
)

// Config says where the files are.
type Config struct {
	FS      vfs.FS
	Dir     string           // the config directory; made when missing
	Now     func() time.Time // for dataVersion and names of damaged files. Default time.Now
	Damaged func(Damage)     // told about each file that could not be read. Default: nobody is told
}

// Open reads the tables. Missing files are empty tables; damaged ones are kept aside and reported to Config.Damaged.
func Open(c Config) (*Topics, *Groups, *Offsets, error) {
	if c.Now == nil {
		c.Now = time.Now
	}
	if c.Damaged == nil {
		c.Damaged = func(Damage) {}
	}
	if err := c.FS.MkdirAll(c.Dir); err != nil {
		return nil, nil, nil, err
	}
	open := func(name string) *file {
		return &file{fs: c.FS, dir: c.Dir, name: name, now: c.Now, damaged: c.Damaged}
	}
	topics := &Topics{table[Topic]{file: open(TopicTable), key: "topicConfigTable"}}
	groups := &Groups{table[Group]{file: open(GroupTable), key: "subscriptionGroupTable"}}
	offsets := &Offsets{file: open(OffsetTable)}
	if err := topics.load(); err != nil {
		return nil, nil, nil, err
	}
	if err := groups.load(); err != nil {
		return nil, nil, nil, err
	}
	if err := offsets.load(); err != nil {
		return nil, nil, nil, err
	}
	return topics, groups, offsets, nil
}

// Topics is the topic table. Values handed out are immutable: copy one to change it, its maps too.
//
// All methods may be called from any goroutine.
type Topics struct{ t table[Topic] }

// Get returns the topic or nil. It takes no lock.
func (t *Topics) Get(name string) *Topic { return t.t.get(name) }

// GetBytes is Get for a name in a buffer. It does not allocate.
func (t *Topics) GetBytes(name []byte) *Topic { return t.t.getBytes(name) }

// Len is the number of topics.
func (t *Topics) Len() int { return len(t.t.snap.Load().byName) }

// Put creates or replaces a topic durably; equal content is no change. A name, count, perm or attribute outside its
// limits gives an *Invalid and changes nothing.
func (t *Topics) Put(c Topic) error { return t.PutAll([]Topic{c}) }

// PutAll is Put for several topics with one write of the file: all of them or, with an error, none.
func (t *Topics) PutAll(cs []Topic) error {
	rows := make(map[string]row[Topic], len(cs))
	for i := range cs {
		r, err := topicRow(&cs[i], t.Get(cs[i].Name))
		if err != nil {
			return err
		}
		rows[cs[i].Name] = r
	}
	return t.t.put(rows)
}

// topicRow makes the row of c, which takes the place of old, or of nothing when that is nil.
func topicRow(c, old *Topic) (r row[Topic], err error) {
	if err := c.check(); err != nil {
		return r, err
	}
	v := c.clone()
	if old != nil && c.Extra == nil {
		v.Extra = maps.Clone(old.Extra)
	}
	text, err := marshal(v)
	return row[Topic]{v, text}, err
}

// ErrNoTopic is returned by Change.
var ErrNoTopic = errors.New("meta: there is no such topic")

// Change is Put of what fn makes of a topic, with no other change in between, and returns both. fn gets a copy whose attributes it may
// change; an error of it changes nothing and is passed on. ErrNoTopic when there is none of the name, which may be a part of a buffer.
func (t *Topics) Change(name string, fn func(*Topic) error) (before, after *Topic, err error) {
	name = strings.Clone(name) // a map that is assigned to keeps the newer one of two equal keys
	return t.t.change(name, func(old *Topic) (r row[Topic], err error) {
		if old == nil {
			return r, ErrNoTopic
		}
		c := old.clone()
		if c.Attributes == nil {
			c.Attributes = map[string]string{}
		}
		if err := fn(c); err != nil {
			return r, err
		}
		c.Name = name
		return topicRow(c, old)
	})
}

// All returns every topic ordered by name, with the version of the table.
func (t *Topics) All() ([]*Topic, DataVersion) { return t.t.all() }

// OnChange registers fn, called once for each durable change, in the order of the changes and outside any lock of the
// table, so fn may call Put. A Put without others beside it returns after fn has; else another caller of Put may still be
// telling.
func (t *Topics) OnChange(fn func(*Topic)) { t.t.onChange(fn) }

func (t *Topics) load() error {
	return t.t.load(func(name string, b []byte) (*Topic, error) {
		c := DefaultTopic(name)
		if err := c.UnmarshalJSON(b); err != nil {
			return nil, err
		}
		c.Name = name // the key is what RocketMQ looks up
		return &c, nil
	})
}

// Groups is the subscription group table. Values handed out are immutable: copy one to change it, its maps too.
//
// All methods may be called from any goroutine.
type Groups struct{ t table[Group] }

// Get returns the group or nil. It takes no lock.
func (g *Groups) Get(name string) *Group { return g.t.get(name) }

// GetBytes is Get for a name in a buffer. It does not allocate.
func (g *Groups) GetBytes(name []byte) *Group { return g.t.getBytes(name) }

// Len is the number of groups.
func (g *Groups) Len() int { return len(g.t.snap.Load().byName) }

// Put creates or replaces a group durably; equal content is no change. A name or number outside its limits gives an
// *Invalid and changes nothing.
func (g *Groups) Put(c Group) error { return g.PutAll([]Group{c}) }

// PutAll is Put for several groups with one write of the file: all of them or, with an error, none.
func (g *Groups) PutAll(cs []Group) error {
	rows := make(map[string]row[Group], len(cs))
	for _, c := range cs {
		if err := c.check(); err != nil {
			return err
		}
		v := c.clone()
		if old := g.Get(c.Name); old != nil && c.Extra == nil {
			v.Extra = maps.Clone(old.Extra)
		}
		text, err := marshal(v)
		if err != nil {
			return err
		}
		rows[c.Name] = row[Group]{v, text}
	}
	return g.t.put(rows)
}

// All returns every group ordered by name, with the version of the table.
func (g *Groups) All() ([]*Group, DataVersion) { return g.t.all() }

// OnChange is [Topics.OnChange] for groups.
func (g *Groups) OnChange(fn func(*Group)) { g.t.onChange(fn) }

func (g *Groups) load() error {
	return g.t.load(func(name string, b []byte) (*Group, error) {
		c := DefaultGroup(name)
		if err := c.UnmarshalJSON(b); err != nil {
			return nil, err
		}
		c.Name = name
		return &c, nil
	})
}
