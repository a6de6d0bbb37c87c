//go:build !faults

package main

import "github.com/danubemq/danube/broker"

// openFaults does nothing in the program that users get: faults.go says what the tag gives.
func (a *app) openFaults(*broker.Config) (ready string, done func(), err error) {
	return "", func() {}, nil
}
