package notify

import (
	"net/netip"
	"slices"
)

// Peers lists the connections of each group by the addresses that they come from, in order.
func (s *Service) Peers() map[string][]netip.AddrPort {
	out := map[string][]netip.AddrPort{}
	s.mu.RLock()
	for se := range s.mu.sessions {
		all := se.members.Load()
		if all == nil {
			continue
		}
		for _, ms := range *all {
			if ms != nil {
				out[ms.g.name] = append(out[ms.g.name], se.peer)
			}
		}
	}
	s.mu.RUnlock()
	for _, peers := range out {
		slices.SortFunc(peers, netip.AddrPort.Compare)
	}
	return out
}
