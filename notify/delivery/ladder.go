package delivery

import "time"

// ladder is how long a target waits after its n-th failure (spec/notify.md 3.4).
var ladder = [...]time.Duration{
	10 * time.Second, 30 * time.Second,
	1 * time.Minute, 2 * time.Minute, 3 * time.Minute, 4 * time.Minute, 5 * time.Minute, 6 * time.Minute,
	7 * time.Minute, 8 * time.Minute, 9 * time.Minute, 10 * time.Minute, 20 * time.Minute, 30 * time.Minute,
	time.Hour, 2 * time.Hour,
}

// Backoff is how long a target waits before it is tried again, counted from the moment its failure is known. attempts
// counts the one that just failed, so the first failure has 1. The last step, two hours, repeats: there is no dead
// letter yet that would end it.
func Backoff(attempts int32) time.Duration {
	return ladder[min(max(int(attempts), 1), len(ladder))-1]
}
