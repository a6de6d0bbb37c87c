// Package meters registers the metrics of a part as one: all of them, or none.
package meters

import "github.com/prometheus/client_golang/prometheus"

// Set is the metrics of one part. Names, help and labels of each are the part's.
type Set []prometheus.Collector

// Register adds the set to a registry; nil: nobody looks. After an error, which is the registry's, none of it is there.
func (s Set) Register(reg prometheus.Registerer) error {
	if reg == nil {
		return nil
	}
	for i, c := range s {
		if err := reg.Register(c); err != nil {
			s[:i].Unregister(reg)
			return err
		}
	}
	return nil
}

// Unregister takes the set out of a registry again; nil as for Register.
func (s Set) Unregister(reg prometheus.Registerer) {
	if reg == nil {
		return
	}
	for _, c := range s {
		reg.Unregister(c)
	}
}
