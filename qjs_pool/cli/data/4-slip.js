// Models make mistakes. This one misreads its own ranking.
const best = ranking.find((row) => row.country === 'Germany');
const share = best.revenue / ranking.reduce((sum, row) => sum + row.revenue, 0);
`${(share * 100).toFixed(1)} %`;
