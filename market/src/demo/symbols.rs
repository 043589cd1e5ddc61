//! The invented companies of `demo`: five letters each, which no company listed in New York uses for its common stock.

/// Symbol, sector and industry.
pub(super) const COMPANIES: [(&str, &str, &str); 60] = [
    ("ARGOL", "Energy", "Oil Producers"),
    ("BRINO", "Energy", "Oil Producers"),
    ("CALDO", "Energy", "Refining"),
    ("DRELK", "Energy", "Refining"),
    ("ENORI", "Energy", "Oil Services"),
    ("FOSSA", "Energy", "Oil Services"),
    ("GASPO", "Energy", "Pipelines"),
    ("ALUMO", "Materials", "Metals"),
    ("BASTO", "Materials", "Metals"),
    ("CLINK", "Materials", "Chemicals"),
    ("DOLOM", "Materials", "Chemicals"),
    ("EKARO", "Materials", "Gold"),
    ("FERRO", "Materials", "Metals"),
    ("GOLMO", "Materials", "Gold"),
    ("AXELO", "Industrials", "Machinery"),
    ("BOLTA", "Industrials", "Machinery"),
    ("CRANO", "Industrials", "Construction"),
    ("DUMPO", "Industrials", "Construction"),
    ("ENGIN", "Industrials", "Aerospace"),
    ("FLITO", "Industrials", "Aerospace"),
    ("GIRDO", "Industrials", "Railways"),
    ("HAULO", "Industrials", "Railways"),
    ("APLET", "Consumer", "Retail"),
    ("BASKO", "Consumer", "Retail"),
    ("CANDO", "Consumer", "Food"),
    ("DINEO", "Consumer", "Restaurants"),
    ("ELSOL", "Consumer", "Apparel"),
    ("FABRO", "Consumer", "Apparel"),
    ("GRANO", "Consumer", "Food"),
    ("HOMEO", "Consumer", "Household Goods"),
    ("ALGIA", "Health", "Pharmaceuticals"),
    ("BIOLO", "Health", "Biotechnology"),
    ("CURIN", "Health", "Biotechnology"),
    ("DENTO", "Health", "Devices"),
    ("ENZIM", "Health", "Biotechnology"),
    ("FARMO", "Health", "Pharmaceuticals"),
    ("GENOR", "Health", "Devices"),
    ("ACREO", "Financials", "Banks"),
    ("BANCO", "Financials", "Banks"),
    ("CREDO", "Financials", "Lending"),
    ("DEPOT", "Financials", "Banks"),
    ("ESCRO", "Financials", "Insurance"),
    ("FONDO", "Financials", "Asset Managers"),
    ("GUILD", "Financials", "Asset Managers"),
    ("HEDGO", "Financials", "Insurance"),
    ("ALGOR", "Technology", "Software"),
    ("BYTEO", "Technology", "Software"),
    ("CHIPO", "Technology", "Semiconductors"),
    ("DATUM", "Technology", "Software"),
    ("ELTRO", "Technology", "Hardware"),
    ("FIBRO", "Technology", "Networks"),
    ("GRIDO", "Technology", "Semiconductors"),
    ("HASHO", "Technology", "Software"),
    ("AQUEO", "Utilities", "Water"),
    ("BRIZO", "Utilities", "Wind"),
    ("CABLO", "Utilities", "Electricity"),
    ("DAMMO", "Utilities", "Hydro"),
    ("ELGRO", "Utilities", "Electricity"),
    ("FLUXO", "Utilities", "Electricity"),
    ("GEOTO", "Utilities", "Geothermal"),
];

/// In the order of the factors that drive them.
pub(super) const SECTORS: [&str; 8] =
    ["Energy", "Materials", "Industrials", "Consumer", "Health", "Financials", "Technology", "Utilities"];

/// The average of all companies; named like the fund that tracks a real index, so that examples look familiar.
pub(super) const INDEX: &str = "SPY";

/// Indices into [`COMPANIES`] and what is special about them.
pub(super) const UNCORRELATED: [usize; 8] = [11, 13, 31, 34, 44, 53, 56, 59];
/// Company, first session.
pub(super) const LISTED_LATE: [(usize, &str); 4] =
    [(4, "2021-09-15"), (26, "2022-03-10"), (50, "2023-02-01"), (52, "2024-04-18")];
/// Company, last session.
pub(super) const DELISTED: (usize, &str) = (40, "2023-03-10");
/// Company, first and last session without a bar.
pub(super) const HALTED: [(usize, &str, &str); 2] =
    [(32, "2022-05-16", "2022-05-24"), (19, "2024-02-07", "2024-02-09")];
/// Company, ex-date, new shares per old share.
pub(super) const SPLIT: (usize, &str, f64) = (47, "2023-06-12", 4.0);
/// Companies that pay in March, June, September and December, before the week of the minute bars or after it.
pub(super) const PAYERS: [usize; 5] = [0, 24, 38, 55, 57];
/// Companies for which about half of the minutes have no trade.
pub(super) const THIN: [usize; 8] = [6, 10, 21, 29, 36, 43, 52, 58];
/// Company that traded under another name before a date.
pub(super) const RENAMED: (usize, &str, &str) = (46, "OLDBY", "2022-06-09");
