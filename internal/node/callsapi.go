package node

import (
	"net/http"
	"slices"
	"strings"

	"github.com/outboard-run/outboard/client"
	"github.com/outboard-run/outboard/internal/api"
	"github.com/outboard-run/outboard/internal/calls"
	"github.com/outboard-run/outboard/internal/model/remote"
	"github.com/outboard-run/outboard/internal/pool/services"
)

// callsAPI is the part of the local API about calls between programs.
type callsAPI struct {
	services *services.Registry
	calls    *calls.Host
	// successor returns the program that takes the calls over, given the program that a request
	// names.
	successor func(program string) (string, error)
}

func (a *callsAPI) register(mux *http.ServeMux) {
	mux.HandleFunc("GET /v1/services", api.Answer(a.getServices))
	mux.HandleFunc("GET /v1/endpoints", api.Answer(a.getEndpoints))
	mux.HandleFunc("POST /v1/endpoints", a.postEndpoint)
	mux.HandleFunc("DELETE /v1/endpoints", api.Answer(a.deleteEndpoint))
	mux.HandleFunc("GET /v1/policies", api.Answer(a.getPolicies))
	mux.HandleFunc("POST /v1/policies", a.postPolicies)
	mux.HandleFunc("POST /v1/policies/rollback", api.Answer(a.postRollback))
	mux.HandleFunc("GET /v1/calls", api.Answer(a.getCalls))
	mux.HandleFunc("POST /v1/upgrade", a.postUpgrade)
}

func (a *callsAPI) getServices(*http.Request) ([]client.Service, error) {
	all := map[string]*client.Service{}
	for _, e := range a.services.Endpoints() {
		for _, name := range e.Services {
			if isOwnService(name) {
				continue
			}
			s := all[name]
			if s == nil {
				s = &client.Service{Name: name, Methods: a.services.Methods(name)}
				all[name] = s
			}
			s.Endpoints++
			if !slices.Contains(s.Nodes, e.Node) {
				s.Nodes = append(s.Nodes, e.Node)
			}
		}
	}
	list := []client.Service{}
	for _, s := range all {
		list = append(list, *s)
	}
	slices.SortFunc(list, func(a, b client.Service) int { return strings.Compare(a.Name, b.Name) })
	return list, nil
}

// isOwnService reports whether nodes use a service among themselves: lists leave it out.
func isOwnService(name string) bool { return strings.HasPrefix(name, remote.ServicePrefix) }

func (a *callsAPI) getEndpoints(r *http.Request) ([]client.Endpoint, error) {
	service := r.URL.Query().Get("service")
	list := []client.Endpoint{}
	for _, e := range a.services.Endpoints() {
		if service == "" && !slices.ContainsFunc(e.Services, isOwnService) || slices.Contains(e.Services, service) {
			list = append(list, client.Endpoint(e))
		}
	}
	return list, nil
}

func (a *callsAPI) postEndpoint(w http.ResponseWriter, r *http.Request) {
	api.Answer(func(r *http.Request) (client.Endpoint, error) {
		var e client.Endpoint
		if err := readBody(w, r, &e); err != nil {
			return e, err
		}
		made, err := a.calls.AddServer(r.Context(), services.Endpoint(e))
		return client.Endpoint(made), err
	})(w, r)
}

func (a *callsAPI) deleteEndpoint(r *http.Request) (api.Nothing, error) {
	return api.Nothing{}, a.services.Remove(r.Context(), r.URL.Query().Get("id"))
}

func (a *callsAPI) getPolicies(r *http.Request) (client.Policies, error) {
	inForce, err := a.calls.Policies(r.Context())
	if err != nil {
		return client.Policies{}, err
	}
	p := client.Policies{Policies: inForce, Versions: []client.PolicyVersion{}}
	for _, v := range a.services.Policies().Versions {
		p.Versions = append(p.Versions, client.PolicyVersion(v))
	}
	return p, nil
}

func (a *callsAPI) postPolicies(w http.ResponseWriter, r *http.Request) {
	api.Answer(func(r *http.Request) (client.PolicyVersion, error) {
		var f client.PolicyFile
		if err := readBody(w, r, &f); err != nil {
			return client.PolicyVersion{}, err
		}
		if err := a.calls.Parse(r.Context(), f.Name, []byte(f.Text)); err != nil {
			return client.PolicyVersion{}, err
		}
		if f.Check {
			return client.PolicyVersion{Name: f.Name, Text: f.Text}, nil
		}
		v, err := a.services.Apply(r.Context(), f.Name, f.Text)
		return client.PolicyVersion(v), err
	})(w, r)
}

func (a *callsAPI) postRollback(r *http.Request) (client.PolicyVersion, error) {
	v, err := a.services.Rollback(r.Context())
	return client.PolicyVersion(v), err
}

func (a *callsAPI) getCalls(r *http.Request) ([]client.Calls, error) {
	return a.calls.Table(r.Context())
}

func (a *callsAPI) postUpgrade(w http.ResponseWriter, r *http.Request) {
	api.Answer(func(r *http.Request) (client.Upgrade, error) {
		var request client.UpgradeRequest
		if err := readBody(w, r, &request); err != nil {
			return client.Upgrade{}, err
		}
		binary, err := a.successor(request.Binary)
		if err != nil {
			return client.Upgrade{}, err
		}
		return a.calls.Upgrade(r.Context(), binary)
	})(w, r)
}
