// Package admin is the side of a broker that is asked: what topics, subscriptions, brokers and the cluster are, and how
// that is to change. Any broker answers any of it. What the metadata decide is proposed to them; what only the owner of a
// partition knows or may do is asked of the owner, and what the leader knows of the leader. Of an owner that is away it is
// said so, and what the metadata know is shown.
//
// Its few types are Board, which answers; Config; and Here, what this broker does as an owner for whichever board was
// asked. A board has no log, no partition and no connection: it reads views, proposes, and sends on errands.
//
// It has no goroutine beside those of a request. The one lock of it guards the snapshots that are on their way page by
// page; a page holds the lock of its transfer and no other.
package admin
