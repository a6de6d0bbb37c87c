// Package plan is the leader's duties as a pure function. Next compares what the metadata says with what the leader knows
// beside it, and answers what to propose and what an operator should know. It remembers no event, so that any leader can
// finish what another began, and all it proposes is a compare-and-set, so that proposing it twice does it once.
//
// Its few types are Census (one walk over a view), Knowledge (leases, probes, the proof that this leader is well),
// Memory (since when it has seen what the metadata does not date), Action and Note. There is a file for each duty: who
// is lost (R7), who is granted what, which moves are taken back and what drains, who votes, where new partitions go.
//
// Nothing here has a clock, goroutine or lock: now is an argument. Package cluster's controller gathers what must be
// known and carries out what is answered. The simulation in the tests runs planner and metadata under a random schedule
// of deaths, returns and leaders that die half-way.
package plan
