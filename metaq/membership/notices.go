package membership

import "time"

// Notices spaces the rebalance notices of a group: the first change is announced at once, changes within the gap after
// an announcement are announced together when the gap is over. Ten members that start together then cost two rounds of
// notices instead of ten, and no member learns of a change later than one gap.
//
// It is not safe for concurrent use and knows no clock. The zero value announces nothing; set Gap before use.
type Notices struct {
	Gap time.Duration

	groups map[string]*notice
}

type notice struct {
	quiet   time.Time // no announcement before this
	waiting bool
}

// Changed notes that the members of a group have to be told, at time now.
func (n *Notices) Changed(now time.Time, group string) {
	if n.groups == nil {
		n.groups = map[string]*notice{}
	}
	g := n.groups[group]
	if g == nil {
		g = &notice{quiet: now}
		n.groups[group] = g
	}
	g.waiting = true
}

// Due appends to dst the groups to announce now. next is when to ask again; ok is false when nothing waits.
func (n *Notices) Due(now time.Time, dst []string) (due []string, next time.Time, ok bool) {
	for name, g := range n.groups {
		switch {
		case g.waiting && !now.Before(g.quiet):
			dst = append(dst, name)
			g.waiting = false
			g.quiet = now.Add(n.Gap)
		case g.waiting:
			if !ok || g.quiet.Before(next) {
				next, ok = g.quiet, true
			}
		case !now.Before(g.quiet):
			delete(n.groups, name)
		}
	}
	return dst, next, ok
}
