package hotel

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// hotels is the number of hotels, and near the number of hotels in an answer.
const hotels, near = 80, 5

// Hotels calls the front end.
func Hotels(ctx context.Context, c grpc.ClientConnInterface, in *HotelsRequest) (*HotelsPage, error) {
	return invoke[HotelsPage](ctx, c, "/"+FrontendService+"/Hotels", in)
}

// Question returns a customer's request, and the number of offers that the answer must have.
func Question(n int) (*HotelsRequest, int) {
	place := locationOf(n % hotels)
	return &HotelsRequest{Place: place, InDate: "2026-12-01", OutDate: "2026-12-05", Customer: "guest", Locale: "en"}, near
}

// RegisterFrontend serves the front end, which calls search and profile.
func RegisterFrontend(r grpc.ServiceRegistrar, search, profile grpc.ClientConnInterface) {
	register(r, FrontendService, "Hotels", func(ctx context.Context, in *HotelsRequest) (*HotelsPage, error) {
		found, err := invoke[NearbyResult](ctx, search, "/"+SearchService+"/Nearby",
			&NearbyRequest{Place: in.GetPlace(), InDate: in.GetInDate(), OutDate: in.GetOutDate()})
		if err != nil {
			return nil, err
		}
		ids := make([]string, 0, near)
		for _, rate := range found.GetRates() {
			ids = append(ids, rate.GetHotel())
		}
		profiles, err := invoke[ProfilesResult](ctx, profile, "/"+ProfileService+"/GetProfiles", &ProfilesRequest{Ids: ids, Locale: in.GetLocale()})
		if err != nil {
			return nil, err
		}
		return page(found.GetRates(), profiles.GetHotels())
	})
}

func page(rates []*RatePlan, profiles []*Hotel) (*HotelsPage, error) {
	if len(rates) != len(profiles) {
		return nil, status.Errorf(codes.Internal, "%d rates of %d hotels", len(rates), len(profiles))
	}
	p := &HotelsPage{}
	for i, rate := range rates {
		if rate.GetHotel() != profiles[i].GetId() {
			return nil, status.Error(codes.Internal, "a rate of another hotel")
		}
		p.Offers = append(p.Offers, &Offer{Hotel: profiles[i], Rate: rate})
	}
	return p, nil
}

// RegisterSearch serves the search, which calls geo and rate.
func RegisterSearch(r grpc.ServiceRegistrar, geo, rate grpc.ClientConnInterface) {
	register(r, SearchService, "Nearby", func(ctx context.Context, in *NearbyRequest) (*NearbyResult, error) {
		found, err := invoke[HotelIDs](ctx, geo, "/"+GeoService+"/Nearby", in.GetPlace())
		if err != nil {
			return nil, err
		}
		rates, err := invoke[RatesResult](ctx, rate, "/"+RateService+"/GetRates",
			&RatesRequest{Ids: found.GetIds(), InDate: in.GetInDate(), OutDate: in.GetOutDate()})
		if err != nil {
			return nil, err
		}
		return &NearbyResult{Rates: rates.GetRates()}, nil
	})
}

// RegisterGeo serves the locations of the hotels.
func RegisterGeo(r grpc.ServiceRegistrar) {
	places := make([]*Point, hotels)
	for i := range places {
		places[i] = locationOf(i)
	}
	register(r, GeoService, "Nearby", func(_ context.Context, in *Point) (*HotelIDs, error) {
		return &HotelIDs{Ids: nearest(places, in)}, nil
	})
}

func nearest(places []*Point, to *Point) []string {
	type candidate struct {
		id       int
		distance float64
	}
	all := make([]candidate, len(places))
	for i, p := range places {
		north, east := p.GetLatitude()-to.GetLatitude(), p.GetLongitude()-to.GetLongitude()
		all[i] = candidate{i, north*north + east*east}
	}
	slices.SortFunc(all, func(a, b candidate) int { return cmp.Compare(a.distance, b.distance) })
	ids := make([]string, 0, near)
	for _, c := range all[:near] {
		ids = append(ids, idOf(c.id))
	}
	return ids
}

// RegisterRate serves the rates.
func RegisterRate(r grpc.ServiceRegistrar) {
	rates := map[string]*RoomType{}
	for i := range hotels {
		rates[idOf(i)] = &RoomType{
			BookableRate: 100 + float64(i), TotalRate: 120 + float64(i), Code: "KNG", Currency: "EUR", Description: "King sized bed",
		}
	}
	register(r, RateService, "GetRates", func(_ context.Context, in *RatesRequest) (*RatesResult, error) {
		out := &RatesResult{}
		for _, id := range in.GetIds() {
			out.Rates = append(out.Rates, &RatePlan{Hotel: id, Code: "RACK", InDate: in.GetInDate(), OutDate: in.GetOutDate(), Room: rates[id]})
		}
		return out, nil
	})
}

// RegisterProfile serves the profiles of the hotels.
func RegisterProfile(r grpc.ServiceRegistrar) {
	profiles := map[string]*Hotel{}
	for i := range hotels {
		profiles[idOf(i)] = profileOf(i)
	}
	register(r, ProfileService, "GetProfiles", func(_ context.Context, in *ProfilesRequest) (*ProfilesResult, error) {
		out := &ProfilesResult{}
		for _, id := range in.GetIds() {
			if h := profiles[id]; h != nil {
				out.Hotels = append(out.Hotels, h)
			}
		}
		return out, nil
	})
}

func idOf(i int) string { return fmt.Sprintf("hotel-%d", i) }

func locationOf(i int) *Point {
	return &Point{Latitude: 37.78 + float64(i%9)/100, Longitude: -122.41 + float64(i/9)/100}
}

func profileOf(i int) *Hotel {
	return &Hotel{
		Id: idOf(i), Name: fmt.Sprintf("House %d", i), Phone: "(415) 555-0100",
		Description: strings.Repeat("A quiet house near the harbour, with a view over the bay. ", 4),
		Address: &Address{
			Number: fmt.Sprint(i), Street: "Market Street", City: "San Francisco", Country: "United States", PostalCode: "94103", Place: locationOf(i),
		},
		Images: []*Image{{Url: fmt.Sprintf("https://example.com/%d/front.jpg", i), Default: true}},
	}
}
