package store

import (
	"github.com/fusionmq/fusionmq/store/log"
	"github.com/fusionmq/fusionmq/store/lookup"
)

// note is what goes with a batch from its caller to the views: what the caller finds out of its records while they are in the
// processor's caches. Reading the log for it afterwards costs three times as much.
type note struct {
	keys   []noteKey // of items, ascending
	once   []noteKey // of messages that are to be stored once
	hashes []uint64  // scratch
}

type noteKey struct {
	item int
	hash uint64
}

// Reset empties the note; the log calls it with the batch's own.
func (n *note) Reset() { n.keys, n.once = n.keys[:0], n.once[:0] }

// cut forgets an item and those behind it.
func (n *note) cut(item int) {
	for _, ks := range []*[]noteKey{&n.keys, &n.once} {
		for i := len(*ks); i > 0 && (*ks)[i-1].item >= item; i-- {
			*ks = (*ks)[:i-1]
		}
	}
}

func noteOf(b *log.Batch) *note {
	if n, ok := b.Note.(*note); ok {
		return n
	}
	n := new(note)
	b.Note = n
	return n
}

// noteKeys notes the keys of the item that was added last.
func (t *topic) noteKeys(b *log.Batch, props []byte) {
	if !lookup.MayHaveKeys(props) {
		return
	}
	n := noteOf(b)
	n.hashes = t.keys.Keys(n.hashes[:0], props)
	for _, h := range n.hashes {
		n.keys = append(n.keys, noteKey{len(b.Items) - 1, h})
	}
	if id, ok := lookup.Once(props); ok { // whoever sent it: it cannot be told from the record
		n.once = append(n.once, noteKey{len(b.Items) - 1, lookup.Anywhere.Hash(id)})
	}
	if t.once.Load() {
		if id := lookup.UniqueID(props); len(id) > 0 {
			n.once = append(n.once, noteKey{len(b.Items) - 1, t.keys.Hash(id)})
		}
	}
}

// noteWaiting notes under which id the item that was added last, which waits, is found in t, the topic that it is for.
func (t *topic) noteWaiting(b *log.Batch, props []byte) {
	id := lookup.UniqueID(props)
	if len(id) == 0 {
		return
	}
	n, k := noteOf(b), noteKey{len(b.Items) - 1, t.keys.Hash(id)}
	n.keys = append(n.keys, k)
	if t.once.Load() {
		n.once = append(n.once, k)
	}
}

// keysOf appends the keys of a part that was written.
func keysOf(es []lookup.Entry, p *log.Part) []lookup.Entry {
	n, ok := p.Batch.Note.(*note)
	if !ok {
		return es
	}
	for _, k := range n.keys {
		if k.item >= p.From && k.item < p.To {
			it := &p.Batch.Items[k.item]
			es = append(es, lookup.Entry{Hash: k.hash, Address: it.Position, Time: it.Time})
		}
	}
	return es
}
