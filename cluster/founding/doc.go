// Package founding is how brokers come to be one cluster and never two (R9), as a pure core: Founder decides what to do
// next from Facts, answers other brokers' questions, and says in its Record, which is saved before anybody hears of it,
// what it holds to. It opens no socket and no file and knows no time: package cluster asks around, saves and waits.
//
// The model in the tests forms clusters of six brokers in random orders of events, with kills before and after each
// write and messages that are late or never come.
package founding
